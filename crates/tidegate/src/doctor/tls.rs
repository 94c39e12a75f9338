//! TLS: files that cannot be used, and certificates that end soon.

use tidegate_net::tls::NamedCertificates;

use super::Finding;
use crate::config::{Config, load_tls};

const AREA: &str = "tls";
const DAY: u64 = 86_400;
/// A certificate that is good for less should have been renewed: authorities that renew by themselves do so at a
/// third of its life.
const SOON_DAYS: u64 = 14;

/// What was seen of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenTls {
    /// Listener, certificate, and seconds for which it is good.
    good: Vec<(String, String, u64)>,
    /// Why others cannot be used.
    unusable: Vec<String>,
}

/// Reads the files as the server would.
pub(super) fn look(config: &Config) -> SeenTls {
    match load_tls(config, &NamedCertificates::default()) {
        Ok(loaded) => {
            let good = loaded.iter().flat_map(|it| {
                let label = it.listener.label();
                let certificates = it.tls.certificates().into_iter();
                certificates.map(move |(file, left)| (label.clone(), file.display().to_string(), left))
            });
            SeenTls { good: good.collect(), unusable: Vec::new() }
        }
        Err(mistakes) => {
            SeenTls { good: Vec::new(), unusable: mistakes.iter().map(ToString::to_string).collect() }
        }
    }
}

/// What follows from it.
pub(super) fn judge(seen: &SeenTls) -> Vec<Finding> {
    let unusable = seen.unusable.iter().map(|why| {
        Finding::problem(
            AREA,
            why.clone(),
            "put a file there that this server's user can read, and that is valid now",
        )
    });
    let good = seen.good.iter().map(|(listener, file, seconds)| {
        let days = seconds / DAY;
        if days < SOON_DAYS {
            let what = format!("{listener}: the certificate in {file} ends in {days} days");
            let repair = "renew it: the server takes a changed file without a restart";
            return Finding::warning(AREA, what, repair);
        }
        Finding::ok(AREA, format!("{listener}: the certificate in {file} is good for {days} days"))
    });
    unusable.chain(good).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_a_warning() {
        let of =
            |days| SeenTls { good: vec![("api".into(), "/c.pem".into(), days * DAY)], ..SeenTls::default() };
        assert_eq!(judge(&of(90))[0].level, Level::Ok);
        let soon = &judge(&of(3))[0];
        assert_eq!(
            (soon.level, soon.what.as_str()),
            (Level::Warning, "api: the certificate in /c.pem ends in 3 days")
        );
        assert!(judge(&SeenTls::default()).is_empty());
        let unusable = SeenTls { unusable: vec!["http.tls_key: x".into()], ..SeenTls::default() };
        assert_eq!(judge(&unusable)[0].level, Level::Problem);
    }
}
