//! A node's knowledge of a name: the stored entry, and the certificate that the node shows.

use tidegate_control::Secret;
use tidegate_net::tls::NamedPair;

use crate::entry::{Issued, StoredName, now};

/// The secret that is the entry of a name at a directory. Secrets of the name at other directories begin in the same
/// way.
pub(crate) fn secret_name(name: &str, directory: &str) -> String {
    format!("acme-certificate {name} {directory}")
}

/// What is known of a name.
#[derive(Default)]
pub(crate) struct KnownName {
    pub(crate) entry: StoredName,
    /// Of the secret; 0: there is none.
    pub(crate) version: u64,
    /// The certificate, if it can be served.
    pub(crate) pair: Option<NamedPair>,
    /// The certificate of another directory, which is shown until there is one of this directory.
    pub(crate) earlier: Option<NamedPair>,
}

impl KnownName {
    /// What clients are shown.
    pub(crate) fn shown(&self) -> Option<&NamedPair> {
        self.pair.as_ref().or(self.earlier.as_ref())
    }

    /// Takes over what is stored now. Where nothing is any more, what is known stays, to be stored with the next change.
    pub(crate) fn replace(&mut self, name: &str, found: Option<&Secret>) {
        self.version = found.map_or(0, |found| found.version);
        let Some(found) = found else { return };
        let entry: StoredName = serde_json::from_str(&found.body).unwrap_or_else(|_| {
            tracing::error!(
                name,
                "the stored entry of a certificate cannot be read: the certificate is ordered anew"
            );
            StoredName::default()
        });
        if entry.issued != self.entry.issued {
            self.pair = entry.issued.as_ref().and_then(|issued| served(name, issued));
        }
        self.entry = entry;
    }
}

/// A stored certificate, if it can be served.
fn served(name: &str, issued: &Issued) -> Option<NamedPair> {
    match issued.pair() {
        Ok(pair) => {
            let days_left = pair.validity.not_after.saturating_sub(now()) / 86_400;
            tracing::info!(name, days_left, "a certificate is in force");
            Some(pair)
        }
        Err(error) => {
            tracing::error!(name, %error, "a stored certificate cannot be served: it is ordered anew");
            None
        }
    }
}

/// The certificate of `name` that another directory has issued and that lasts longest, among what is stored.
pub(crate) fn earlier(name: &str, own: &str, stored: &[Secret]) -> Option<NamedPair> {
    let of_name = secret_name(name, "");
    let others = stored.iter().filter(|secret| secret.name != own && secret.name.starts_with(&of_name));
    let issued = others.filter_map(|secret| serde_json::from_str::<StoredName>(&secret.body).ok()?.issued);
    let pairs = issued.filter_map(|issued| issued.pair().ok());
    pairs.max_by_key(|pair| pair.validity.not_after)
}
