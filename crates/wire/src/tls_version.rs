//! The versions of TLS that are spoken, as settings and documents write them.

use serde::Deserialize;

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

impl TlsVersion {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// The texts that stand for one, as messages list them.
    pub const ACCEPTED: &'static str = "\"1.2\", \"1.3\"";

    /// The text that stands for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_read_by_its_name_and_no_other_text_is_one() {
        let read = |text: &str| TlsVersion::deserialize(serde_json::Value::from(text)).ok();
        for version in TlsVersion::ALL {
            assert_eq!(read(version.name()), Some(version));
            assert!(TlsVersion::ACCEPTED.contains(version.name()));
        }
        for other in ["1.1", "1.4", "TLSv1.3", "Tls13", ""] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(TlsVersion::default().name(), "1.2");
    }
}
