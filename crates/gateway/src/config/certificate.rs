//! `certificate` of a route: whose client certificates open it.

use super::part::KeyReader;

const ACCEPTED: &str =
    "names: \"spiffe://shop/pay\", \"spiffe://shop/*\", \"*.clients.example\", or \"*\" for all";

/// A request needs a client certificate with one of these names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateAuth {
    names: Vec<NamePattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePattern {
    Any,
    Exactly(Box<str>),
    BeginsWith(Box<str>),
    /// DNS names below this one, which begins with a dot.
    Below(Box<str>),
}

impl CertificateAuth {
    /// Whether a certificate of this name opens the route.
    pub(crate) fn accepts(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| match pattern {
            NamePattern::Any => true,
            NamePattern::Exactly(text) => **text == *name,
            NamePattern::BeginsWith(text) => name.starts_with(&**text),
            // The client chooses how the URI of its name ends, so the end proves nothing.
            NamePattern::Below(text) => name.ends_with(&**text) && !name.contains([':', '/']),
        })
    }
}

pub(super) fn certificate(reader: &mut KeyReader<'_>) -> Option<CertificateAuth> {
    let mut names = Vec::new();
    for (index, text) in reader.texts("names").into_iter().enumerate() {
        match pattern(text) {
            Some(pattern) => names.push(pattern),
            None => reader.mistake(&format!("names/{index}"), format!("is {text:?}"), ACCEPTED),
        }
    }
    if reader.field("names").and_then(|list| list.as_array()).is_none_or(Vec::is_empty) {
        reader.mistake("names", "is missing or empty", ACCEPTED);
    }
    (!names.is_empty()).then_some(CertificateAuth { names })
}

fn pattern(text: &str) -> Option<NamePattern> {
    let (text, begins, ends) = match (text.strip_prefix('*'), text.strip_suffix('*')) {
        _ if text == "*" => return Some(NamePattern::Any),
        (Some(rest), _) => (rest, false, true),
        (None, Some(rest)) => (rest, true, false),
        (None, None) => (text, false, false),
    };
    match text {
        _ if text.contains('*') => None,
        _ if begins => Some(NamePattern::BeginsWith(text.into())),
        _ if ends => (text.len() > 1 && text.starts_with('.')).then(|| NamePattern::Below(text.into())),
        _ => Some(NamePattern::Exactly(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_whole_by_their_beginning_or_below_a_domain() {
        for (text, name, fits) in [
            ("a.example", "a.example", true),
            ("a.example", "b.a.example", false),
            ("*", "anything", true),
            ("*.a.example", "b.a.example", true),
            ("*.a.example", "a.example", false),
            ("*.a.example", "spiffe://evil/x.a.example", false),
            ("spiffe://shop/*", "spiffe://shop/pay", true),
            ("spiffe://shop/*", "spiffe://shopping/pay", false),
        ] {
            let auth = CertificateAuth { names: vec![pattern(text).expect("a pattern")] };
            assert_eq!(auth.accepts(name), fits, "{text} {name}");
        }
        for text in ["a*b", "**", "*a", "*.", "*.a*"] {
            assert_eq!(pattern(text), None, "{text}");
        }
    }
}
