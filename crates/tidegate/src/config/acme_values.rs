//! The types of the settings of ACME: what each accepts.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use serde_json::{Value as Json, json};
use tidegate_certificates::ChallengeKind;
use tidegate_settings::choice;
use tidegate_settings::list::Item;
use tidegate_settings::value::{TomlType, Value};

/// Longest name of a host, in bytes (RFC 1035).
const MAX_NAME: usize = 253;

choice! {
    /// How the authority is shown that a name is this server's.
    AcmeChallenge {
        /// By a gateway listener without TLS.
        Http01 = "http-01",
        /// By a listener with TLS.
        TlsAlpn01 = "tls-alpn-01",
    }
}

impl From<AcmeChallenge> for ChallengeKind {
    fn from(challenge: AcmeChallenge) -> Self {
        match challenge {
            AcmeChallenge::Http01 => Self::Http01,
            AcmeChallenge::TlsAlpn01 => Self::TlsAlpn01,
        }
    }
}

/// A name that a certificate is ordered for, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(pub(super) String);

impl fmt::Display for CertificateName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Item for CertificateName {
    const ACCEPTED: &'static str =
        "names, as in \"shop.example\"; no addresses, and no wildcards, which neither challenge proves";

    fn parse(text: &str) -> Option<Self> {
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(is_inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_name = text.len() <= MAX_NAME
            && text.contains('.')
            && text.split('.').all(is_label)
            && text.parse::<IpAddr>().is_err();
        is_name.then(|| Self(text.to_ascii_lowercase()))
    }
}

/// A mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl fmt::Display for MailAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Item for MailAddress {
    const ACCEPTED: &'static str = "mail addresses, as in \"ops@shop.example\"";

    fn parse(text: &str) -> Option<Self> {
        let (local, domain) = text.split_once('@')?;
        // RFC 8555, 7.3: one address in each mailto URL, and no header fields.
        let is_plain = !local.is_empty() && !domain.is_empty() && !text.contains(['?', ':', '/']);
        (is_plain && !domain.contains('@')).then(|| Self(text.to_owned()))
    }
}

/// Where an authority's directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(pub(super) String);

impl Value for DirectoryUrl {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        let url: Uri = text.parse().ok()?;
        let is_good = url.scheme_str() == Some("https")
            && url.host().is_some_and(|host| !host.is_empty())
            && url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        is_good.then(|| Self(text.to_owned()))
    }

    fn accepted((): &()) -> String {
        "a URL of https://".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "pattern": "^https://.+$" })
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_can_be_proved_are_ordered() {
        for (text, read) in [
            ("Shop.Example", Some("shop.example")),
            ("a-1.b.example", Some("a-1.b.example")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("*.shop.example", None),
            ("localhost", None),
            ("127.0.0.1", None),
            ("[::1]", None),
            ("shop.example.", None),
            ("shop..example", None),
            ("-shop.example", None),
            ("shop.example:443", None),
            ("b\u{fc}cher.example", None),
        ] {
            assert_eq!(CertificateName::parse(text).map(|it| it.0).as_deref(), read, "{text}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert!(CertificateName::parse(&long).is_none());
    }

    #[test]
    fn a_directory_is_spoken_to_by_tls_alone() {
        let parse = |text: &str| DirectoryUrl::parse(text, &()).is_some();
        assert!(parse("https://ca.example/dir") && parse("https://[::1]:14000/dir"));
        for text in ["http://ca.example/dir", "https://", "https://u@ca.example/", "ca.example", ""] {
            assert!(!parse(text), "{text}");
        }
        for (text, is_good) in
            [("ops@shop.example", true), ("a@b?cc=c", false), ("a@b@c", false), ("a", false)]
        {
            assert_eq!(MailAddress::parse(text).is_some(), is_good, "{text}");
        }
    }
}
