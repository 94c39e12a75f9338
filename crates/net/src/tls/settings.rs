//! The TLS of a listener, as its document says it. Files are only named here.

use std::path::PathBuf;

use tidegate_algorithms::document::DocumentReader;
use tidegate_wire::tls_version::TlsVersion;

use super::{PairFiles, TlsFiles};

/// Most pairs of files for names of a listener.
pub const MAX_PAIRS: usize = 1_000;
const PAIR_KEYS: [&str; 2] = ["certificate", "key"];
const MAX_PATH: usize = 4_096;

/// The TLS of a listener, as its document says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `tls_certificate` and `tls_key`: what clients are shown that ask for no name, or for one of which there is nothing.
    pub pair: Option<PairFiles>,
    /// `tls_pairs`: what clients are shown that ask for a name in the certificate.
    pub pairs: Vec<PairFiles>,
    /// `tls_acme`: whether certificates are shown that were ordered.
    pub acme: bool,
    /// `tls_client_ca`: the authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// `tls_min_version`: the oldest version that clients may speak.
    pub min_version: TlsVersion,
}

impl TlsSettings {
    /// The fields that are read.
    pub const KEYS: [&'static str; 6] =
        ["tls_certificate", "tls_key", "tls_pairs", "tls_acme", "tls_client_ca", "tls_min_version"];

    /// Reads the fields of a listener whose place is `pointer`, and notes what is wrong with them.
    #[must_use]
    pub fn read(reader: &mut DocumentReader<'_>, pointer: &str) -> Self {
        let [certificate, key, client_ca] =
            ["tls_certificate", "tls_key", "tls_client_ca"].map(|field| file(reader, field));
        let pairs = pairs(reader, pointer);
        let acme = reader.flag("tls_acme").unwrap_or(false);
        match (&certificate, &key, &client_ca) {
            (Some(_), None, _) => {
                reader.mistake("tls_certificate", "is given without tls_key", "both or neither")
            }
            (None, Some(_), _) => {
                reader.mistake("tls_key", "is given without tls_certificate", "both or neither")
            }
            (None, None, Some(_)) if !acme && pairs.is_empty() => {
                let accepted = "a certificate and its key beside it, tls_pairs or tls_acme";
                reader.mistake("tls_client_ca", "is given without tls_certificate", accepted);
            }
            _ => {}
        }
        let min_version = reader.choice("tls_min_version", TlsVersion::ACCEPTED);
        if min_version.is_some() && certificate.is_none() && key.is_none() && !acme && pairs.is_empty() {
            let accepted = "tls_certificate, tls_pairs or tls_acme beside it";
            reader.mistake("tls_min_version", "has no effect without TLS", accepted);
        }
        let pair = certificate.zip(key).map(|(certificate, key)| PairFiles { certificate, key });
        Self { pair, pairs, acme, client_ca, min_version: min_version.unwrap_or_default() }
    }

    /// Whether clients speak TLS.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.pair.is_some() || !self.pairs.is_empty() || self.acme
    }

    /// The files, for clients who must show a certificate, or may.
    #[must_use]
    pub fn files(&self, is_client_auth_optional: bool) -> TlsFiles {
        let (pair, named, client_ca) = (self.pair.clone(), self.pairs.clone(), self.client_ca.clone());
        TlsFiles { pair, named, client_ca, is_client_auth_optional }
    }
}

fn file(reader: &mut DocumentReader<'_>, field: &str) -> Option<PathBuf> {
    reader.text(field, 1, MAX_PATH).map(PathBuf::from)
}

fn pairs(reader: &mut DocumentReader<'_>, pointer: &str) -> Vec<PairFiles> {
    let mut read = Vec::new();
    for (index, value) in reader.list("tls_pairs", MAX_PAIRS).iter().enumerate() {
        let mut entry = match DocumentReader::new(value, &format!("{pointer}/tls_pairs/{index}"), &PAIR_KEYS)
        {
            Ok(entry) => entry,
            Err(mistakes) => {
                reader.mistakes.extend(mistakes);
                continue;
            }
        };
        let [certificate, key] = PAIR_KEYS.map(|field| {
            if entry.field(field).is_none() {
                entry.mistake(field, "is missing", "a path");
            }
            file(&mut entry, field)
        });
        reader.mistakes.append(&mut entry.mistakes);
        read.extend(certificate.zip(key).map(|(certificate, key)| PairFiles { certificate, key }));
    }
    read
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(document: &Value) -> Result<TlsSettings, Vec<String>> {
        let mut reader = DocumentReader::new(document, "/a", &TlsSettings::KEYS).unwrap();
        let read = TlsSettings::read(&mut reader, "/a");
        let mistakes: Vec<_> =
            reader.mistakes.iter().map(|it| format!("{} {}", it.pointer, it.problem)).collect();
        if mistakes.is_empty() { Ok(read) } else { Err(mistakes) }
    }

    #[test]
    fn pairs_are_read_and_halves_refused() {
        let pair =
            |name: &str| PairFiles { certificate: format!("{name}.pem").into(), key: "key.pem".into() };
        let good =
            json!({"tls_pairs": [{"certificate": "a.pem", "key": "key.pem"}], "tls_client_ca": "ca.pem"});
        let settings = read(&good).unwrap();
        assert_eq!((settings.pair.clone(), &settings.pairs[..]), (None, &[pair("a")][..]));
        assert!(settings.is_on() && !TlsSettings::default().is_on());
        assert_eq!(settings.files(true).client_ca, Some("ca.pem".into()));
        assert_eq!(settings.min_version, TlsVersion::Tls12);
        let newest = read(&json!({"tls_acme": true, "tls_min_version": "1.3"})).unwrap();
        assert_eq!(newest.min_version, TlsVersion::Tls13);
        for (bad, says) in [
            (json!({"tls_certificate": "a"}), "/a/tls_certificate is given without tls_key"),
            (json!({"tls_key": "a"}), "/a/tls_key is given without tls_certificate"),
            (json!({"tls_client_ca": "a"}), "/a/tls_client_ca is given without tls_certificate"),
            (json!({"tls_min_version": "1.3"}), "/a/tls_min_version has no effect without TLS"),
            (json!({"tls_acme": true, "tls_min_version": "1.1"}), "/a/tls_min_version is \"1.1\""),
            (json!({"tls_acme": true, "tls_min_version": 1.3}), "/a/tls_min_version is 1.3"),
            (json!({"tls_pairs": [{"certificate": "a"}]}), "/a/tls_pairs/0/key is missing"),
            (json!({"tls_pairs": [{"certificate": "a", "key": "b"}, 3]}), "/a/tls_pairs/1 is a number"),
        ] {
            assert_eq!(read(&bad), Err(vec![says.to_owned()]));
        }
    }
}
