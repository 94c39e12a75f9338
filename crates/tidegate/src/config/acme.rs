//! The settings of ACME: what has to be there beside each, and what is ordered. What each accepts is in `acme_values.rs`.

use tidegate_certificates::AcmeConfig;
use tidegate_settings::mistake::{Found, Mistake, Origin};

use super::acme_values::AcmeChallenge;
use super::listener::{Listener, ServiceListener, listeners, origin_of};
use super::{Config, GatewayListener, Loaded};

/// Largest file of authorities that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

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
