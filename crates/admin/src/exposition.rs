//! The two text forms of the metrics page, and the choice between them for a scraper.
//!
//! | form | asked for by | differs in |
//! |---|---|---|
//! | OpenMetrics 1.0 | `accept: application/openmetrics-text`, as Prometheus sends it | is what the page is written in |
//! | Prometheus' text format 0.0.4 | everybody else: curl, `promtool check metrics`, older scrapers | a counter is declared as its series is called, info is a gauge, no end mark |
//!
//! The second form is made from the first, line by line, so that numbers are written in one place.

use std::fmt::{self, Write};

use http::{HeaderMap, header};

/// A text form of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    OpenMetrics,
    Classic,
}

impl Exposition {
    /// The form that `accept` prefers.
    pub(crate) fn negotiated(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut open_metrics, mut classic) = (0, 0);
        for range in ranges.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1_000, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = thousandths(value.trim()),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match media_type.as_str() {
                "application/openmetrics-text" if version.is_none_or(|it| it == "1.0.0") => {
                    open_metrics = quality.max(open_metrics);
                }
                "text/plain" if version.is_none_or(|it| it == "0.0.4") => classic = quality.max(classic),
                _ => {}
            }
        }
        if open_metrics > 0 && open_metrics >= classic { Self::OpenMetrics } else { Self::Classic }
    }

    /// The page's media type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A weight (RFC 9110, 12.4.2) in thousandths; 0 if it is not a weight.
fn thousandths(text: &str) -> u32 {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 3 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    match (whole, format!("{rest:0<3}").parse::<u32>()) {
        ("0", Ok(thousandths)) => thousandths,
        ("1", Ok(0)) => 1_000,
        _ => 0,
    }
}

/// Writes a page of OpenMetrics, without its end mark, in the classic form.
pub(crate) fn write_classic(page: &str, out: &mut impl Write) -> fmt::Result {
    let mut help = "";
    for line in page.lines() {
        if line.starts_with("# HELP ") {
            // Its name depends on the type, which the next line says.
            help = line;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some(text) = help.strip_prefix("# HELP ").and_then(|rest| rest.strip_prefix(name)) {
                writeln!(out, "# HELP {name}{suffix}{text}")?;
            }
            writeln!(out, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with("# ") {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str) -> Exposition {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
        }
        Exposition::negotiated(&headers)
    }

    #[test]
    fn a_scraper_gets_the_form_that_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in
            [prometheus, "application/openmetrics-text", "Application/OpenMetrics-Text; version=\"1.0.0\""]
        {
            assert_eq!(negotiated(accept), Exposition::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/html",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.3,text/plain;q=0.9",
            "application/openmetrics-text;q=nonsense",
        ] {
            assert_eq!(negotiated(accept), Exposition::Classic, "{accept}");
        }
    }

    #[test]
    fn weights_are_read_as_http_has_them() {
        for (text, weight) in [
            ("1", 1_000),
            ("1.000", 1_000),
            ("0.5", 500),
            ("0.05", 50),
            ("0", 0),
            ("0.", 0),
            ("1.5", 0),
            ("2", 0),
            ("0.1234", 0),
            ("-1", 0),
            ("0.+1", 0),
            ("", 0),
        ] {
            assert_eq!(thousandths(text), weight, "{text}");
        }
    }

    #[test]
    fn counters_are_declared_as_their_series_are_called() {
        let page = "# HELP a Things done\n# TYPE a counter\na_total{x=\"# TYPE a counter\"} 1\n\
                    # HELP b Which\n# TYPE b info\nb_info{v=\"1\"} 1\n# HELP c_seconds Time\n\
                    # TYPE c_seconds histogram\nc_seconds_bucket{le=\"+Inf\"} 1\n";
        let mut classic = String::new();
        write_classic(page, &mut classic).unwrap();
        assert_eq!(
            classic,
            "# HELP a_total Things done\n# TYPE a_total counter\na_total{x=\"# TYPE a counter\"} 1\n\
             # HELP b_info Which\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c_seconds Time\n\
             # TYPE c_seconds histogram\nc_seconds_bucket{le=\"+Inf\"} 1\n"
        );
    }
}
