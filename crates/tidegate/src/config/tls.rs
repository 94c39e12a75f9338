//! The TLS settings of the listeners: what must be given together, and whether it can be served with.
//!
//! [`super::load`] reads no files, so it checks only which settings are there. The files are read
//! by [`load_tls`], which both `tidegate check` and the start of the server call: what the one accepts,
//! the other can serve with.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tidegate_net::tls::{self, NamedCertificates, PairFiles, Tls, TlsConfig, TlsError, TlsFile, TlsFiles};
use tidegate_settings::mistake::{Found, Mistake};
use tidegate_settings::table::TlsSettings;
use tidegate_wire::tls_version::TlsVersion;

use super::file_stamp::{Stamp, stamp};
use super::listener::{Listener, ListenerTls, ServiceListener, TlsSource, listeners, origin_of};
use super::secured::{Secured, TlsMistake};
use super::{Config, Loaded};

/// A certificate that is good for less than this is worth a warning.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// What tells whether `files` have changed.
pub(crate) fn stamps(TlsFiles { pair, named, client_ca, .. }: &TlsFiles) -> Vec<Stamp> {
    let pairs = pair.iter().chain(named).flat_map(|files| [&files.certificate, &files.key]);
    pairs.chain(client_ca).map(|path| stamp(path)).collect()
}

/// Reads the files that TLS settings name; one entry for each listener that has TLS. Listeners that show the
/// certificates of names take them from `named`. Blocks on the disk.
///
/// # Errors
/// For each listener the first file that cannot be used.
pub fn load_tls(config: &Config, named: &NamedCertificates) -> Result<Vec<Secured>, Vec<TlsMistake>> {
    load_tls_of(config, named, |_| true)
}

/// As [`load_tls`], of some listeners.
///
/// # Errors
/// For each of them the first file that cannot be used.
pub(crate) fn load_tls_of(
    config: &Config,
    named: &NamedCertificates,
    is_asked: impl Fn(Listener) -> bool,
) -> Result<Vec<Secured>, Vec<TlsMistake>> {
    let (mut loaded, mut mistakes) = (Vec::new(), Vec::new());
    for ServiceListener { listener, tls, .. } in listeners(config).filter(|it| is_asked(it.listener)) {
        let Some(ListenerTls { source, protocols }) = tls else { continue };
        let (files, has_acme, passed, min_version) = match source {
            TlsSource::Settings(tls) => (files(tls), false, Vec::new(), tls.min_version),
            TlsSource::List { files, has_acme, passed, min_version } => {
                (files, has_acme, passed, min_version)
            }
        };
        let named = has_acme.then(|| named.clone());
        if files.pair.is_none() && files.named.is_empty() && named.is_none() {
            continue;
        }
        let tls = TlsConfig {
            files,
            named,
            protocols,
            passed: passed.iter().map(|protocol| protocol.as_bytes().to_vec()).collect(),
            min_version,
            handshake_timeout: config.settings.limits.header_deadline,
            max_handshakes: tls::MAX_HANDSHAKES,
        };
        let read = stamps(&tls.files);
        match Tls::load(tls) {
            Ok(tls) => loaded.push(Secured { listener, tls, read }),
            Err(error) => {
                let path = listener.path(&setting(&error));
                mistakes.push(TlsMistake { listener, path, error });
            }
        }
    }
    if mistakes.is_empty() { Ok(loaded) } else { Err(mistakes) }
}

fn files(settings: &TlsSettings) -> TlsFiles {
    let [certificate, key, client_ca] = settings.files().map(Clone::clone);
    let pair = certificate.zip(key).map(|(certificate, key)| PairFiles { certificate, key });
    TlsFiles { pair, named: Vec::new(), client_ca, is_client_auth_optional: false }
}

/// Which setting of a listener names the file.
fn setting(error: &TlsError) -> String {
    match (error.place, error.file) {
        (Some(place), TlsFile::Key) => format!("tls_pairs[{place}].key"),
        (Some(place), _) => format!("tls_pairs[{place}].certificate"),
        (None, TlsFile::Certificate) => "tls_certificate".to_owned(),
        (None, TlsFile::Key) => "tls_key".to_owned(),
        (None, TlsFile::ClientCa) => "tls_client_ca".to_owned(),
    }
}

impl Loaded {
    /// Reads the files that the TLS settings name, as the server would. Warnings about certificates
    /// that expire soon. Blocks on the disk.
    pub(super) fn check_tls(&self, found: &mut Found) -> Vec<String> {
        let mistakes = match load_tls(&self.config, &NamedCertificates::default()) {
            Ok(loaded) => return loaded.iter().flat_map(|it| expire_soon(&it.tls)).collect(),
            Err(mistakes) => mistakes,
        };
        found.extend(mistakes.into_iter().map(|TlsMistake { listener, path, error }| Mistake {
            origin: origin_of(listener, &self.listener_origins).unwrap_or_else(|| self.origin(&path).clone()),
            path,
            accepted: accepted(error.file).to_owned(),
            problem: error.to_string(),
        }));
        Vec::new()
    }
}

fn expire_soon(tls: &Tls) -> impl Iterator<Item = String> {
    let soon = tls.certificates().into_iter().filter(|(_, left)| *left < SOON.as_secs());
    soon.map(|(file, left)| {
        format!("{} holds a certificate that expires in {} h", file.display(), left / 3_600)
    })
}

fn accepted(file: TlsFile) -> &'static str {
    match file {
        TlsFile::Certificate => "a PEM file with a certificate that is valid now",
        TlsFile::Key => "a PEM file with the certificate's private key, not encrypted",
        TlsFile::ClientCa => "a PEM file with the certificates of authorities",
    }
}

/// The JSON schema of the fields of [`tls::TlsSettings`].
pub(super) fn listener_schema() -> Map<String, Json> {
    let file =
        |doc: &str| json!({ "type": "string", "minLength": 1, "maxLength": 4_096, "description": doc });
    let certificate = file("PEM file with a certificate, and the chain that leads to its authority.");
    let pair = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["certificate", "key"],
        "properties": { "certificate": certificate, "key": file("PEM file with its private key, not encrypted.") },
    });
    let fields = [
        ("tls_certificate", file("PEM file with the certificate that this listener shows.")),
        ("tls_key", file("PEM file with the private key of tls_certificate, not encrypted.")),
        (
            "tls_pairs",
            json!({
                "type": "array",
                "maxItems": tls::MAX_PAIRS,
                "items": pair,
                "description": "More certificates, each shown to clients that ask for a name in it.",
            }),
        ),
        (
            "tls_acme",
            json!({
                "type": "boolean",
                "description": "Whether this listener shows the certificates that are ordered for `acme.names`. Clients that ask for another name are shown tls_certificate.",
            }),
        ),
        ("tls_client_ca", file("PEM file with the authorities of clients' certificates (mTLS).")),
        (
            "tls_min_version",
            json!({
                "enum": TlsVersion::ALL.map(TlsVersion::name),
                "description": "The oldest version of TLS that clients may speak.",
            }),
        ),
    ];
    fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Refuses halves: a certificate and its key are given together, authorities and a version beside them.
pub(super) fn cross_checks(config: &Config, refuse: &mut dyn FnMut(&str, String, &str)) {
    for ServiceListener { listener, tls, .. } in listeners(config) {
        let Some(ListenerTls { source: TlsSource::Settings(tls), .. }) = tls else { continue };
        let [certificate, key, client_ca] =
            ["tls_certificate", "tls_key", "tls_client_ca"].map(|setting| listener.path(setting));
        match tls.files() {
            [Some(_), None, _] => refuse(&certificate, format!("is given without {key}"), "both or neither"),
            [None, Some(_), _] => refuse(&key, format!("is given without {certificate}"), "both or neither"),
            [None, None, Some(_)] => {
                let problem = format!("is given without {certificate}");
                refuse(&client_ca, problem, "a certificate and its key beside it");
            }
            [None, None, None] if tls.min_version != TlsVersion::default() => {
                let problem = format!("is given without {certificate}");
                refuse(&listener.path("tls_min_version"), problem, "a certificate and its key beside it");
            }
            _ => {}
        }
    }
    let admin = &config.settings.admin;
    let [certificate, ..] = admin.tls.files();
    if admin.listen.is_none() && certificate.is_some() {
        let problem = "is given without admin.listen".to_owned();
        refuse("admin.tls_certificate", problem, "an address for the admin API beside it");
    }
}
