//! The report as one HTML file: no script, no network, everything drawn here as inline SVG.
//!
//! The file carries a Content-Security-Policy that forbids everything but its own style element, so
//! that a report from elsewhere can be opened without trust. Every text that did not come from this
//! source goes through [`escape`]. Colours follow the reader's scheme by `prefers-color-scheme`; the
//! page works at 320 px: charts scale, wide tables scroll inside their own box.

mod charts;
mod page;
mod svg;

pub use page::html;

/// Text that is safe between tags and inside quoted attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters have no business in a page, and NUL ends some parsers.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_text_holds_no_markup(text in "\\PC{0,60}|[<>&\"'a\u{0}]{0,20}") {
            let safe = escape(&text);
            let clean = !safe.contains(['<', '>', '"', '\'', '\u{0}']);
            prop_assert!(clean);
        }
    }
}
