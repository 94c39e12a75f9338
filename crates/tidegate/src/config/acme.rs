//! The settings of ACME: what each accepts, and what has to be there beside it.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use serde_json::{Value as Json, json};
use tidegate_certificates::{AcmeConfig, ChallengeKind};

use super::list::Item;
use super::mistake::{Found, Mistake, Origin};
use super::services::{Listener, ServiceListener, listeners, origin_of};
use super::value::{TomlType, Value, choice};
use super::{Config, GatewayListener, Loaded};

/// Longest name of a host, in bytes (RFC 1035).
const MAX_NAME: usize = 253;

/// Largest file of authorities that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

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
pub struct CertificateName(String);

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

/// Refuses names that nothing shows or nothing proves, and listeners that show nothing.
pub(super) fn cross_checks(
    config: &Config,
    listener_origins: &[(Listener, Origin)],
    origin: impl Fn(&str) -> Origin,
    found: &mut Found,
) {
    let acme = &config.settings.acme;
    let mut refuse = |origin: Origin, path: String, problem: &str, accepted: &str| {
        found.push(Mistake { origin, path, problem: problem.to_owned(), accepted: accepted.to_owned() });
    };
    let mut showing = listeners(config).filter(ServiceListener::has_acme).map(|it| it.listener);
    if acme.names.is_empty() {
        for listener in showing {
            let path = listener.path("tls_acme");
            refuse(
                origin_of(listener, listener_origins).unwrap_or(Origin::Default),
                path,
                "is true, and acme.names is empty",
                "names in acme.names",
            );
        }
        return;
    }
    let mut refuse = |path: &str, problem: &str, accepted: &str| {
        refuse(origin(path), path.to_owned(), problem, accepted);
    };
    if showing.next().is_none() {
        let accepted = "tls_acme = true at a [[gateway.listener]] or [[edge.listener]]";
        refuse("acme.names", "are ordered, and no listener shows their certificates", accepted);
    }
    if !acme.agree_to_terms {
        let accepted = "true, which says that you agree to the terms of the authority of acme.directory";
        refuse("acme.agree_to_terms", "is false, and there are acme.names", accepted);
    }
    let is_plain = |it: &GatewayListener| !it.tls.is_on();
    if acme.challenge == AcmeChallenge::Http01 && !config.listeners.iter().any(is_plain) {
        let accepted =
            "\"tls-alpn-01\", or a [[gateway.listener]] without TLS, which the authority reaches on port 80";
        refuse("acme.challenge", "is \"http-01\", and no listener can answer that", accepted);
    }
}

impl Config {
    /// What is ordered by ACME, if anything is. Blocks on the disk.
    ///
    /// # Errors
    /// When `acme.ca_file` cannot be read: why.
    pub fn acme(&self) -> Result<Option<AcmeConfig>, String> {
        let acme = &self.settings.acme;
        let mut names: Vec<Box<str>> = acme.names.iter().map(|name| name.0.as_str().into()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Ok(None);
        }
        let authorities = acme.ca_file.as_ref().map(|path| {
            let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
            if length > MAX_FILE_BYTES {
                return Err(format!("it is larger than {MAX_FILE_BYTES} bytes"));
            }
            std::fs::read(path).map_err(|error| error.to_string())
        });
        let authorities = authorities.transpose()?.map(Vec::into_boxed_slice);
        Ok(Some(AcmeConfig {
            directory: acme.directory.0.clone(),
            contact: acme.contact.iter().map(ToString::to_string).collect(),
            names,
            challenge: acme.challenge.into(),
            authorities,
        }))
    }
}

impl Loaded {
    /// Reads what `acme.ca_file` names, as the server would.
    pub(super) fn check_acme(&self, found: &mut Found) {
        let read = self.config.acme().and_then(|config| match config {
            Some(config) => config.check().map_err(|error| error.to_string()),
            None => Ok(()),
        });
        if let Err(problem) = read {
            self.refuse("acme.ca_file", problem, "a PEM file with the certificates of authorities", found);
        }
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
