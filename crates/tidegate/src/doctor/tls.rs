//! TLS: files that cannot be used, and certificates that end soon, of listeners and towards servers.
//!
//! A pair of files of an upstream that cannot be read, or does not go together, is a mistake of the configuration, and found with it.

use tidegate_algorithms::time::SECOND;
use tidegate_net::clock::wall;
use tidegate_net::tls::NamedCertificates;
use tidegate_upstream::client_pair::ClientCertificate;

use super::Finding;
use crate::config::{Config, load_tls};

const AREA: &str = "tls";
const DAY: u64 = 86_400;
/// A certificate that is good for less should have been renewed: authorities that renew by themselves do so at a
/// third of its life.
const SOON_DAYS: u64 = 14;
const RENEW: &str = "renew it: the server takes a changed file without a restart";

/// What was seen of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenTls {
    /// Listener, certificate, and seconds for which it is good.
    good: Vec<(String, String, u64)>,
    /// Why others cannot be used.
    unusable: Vec<String>,
    /// Upstream, and the certificate that its servers are shown.
    to_servers: Vec<(String, ClientCertificate)>,
    /// Seconds since 1970.
    now: u64,
}

/// Reads the files as the server would.
pub(super) fn look(config: &Config) -> SeenTls {
    let upstreams = config.gateway.config().upstreams;
    let to_servers = upstreams.iter().filter_map(|upstream| {
        let certificate = upstream.tls.as_ref()?.certificate()?;
        Some((format!("upstream {:?}", upstream.name), certificate))
    });
    let seen = SeenTls { to_servers: to_servers.collect(), now: wall().0 / SECOND, ..SeenTls::default() };
    match load_tls(config, &NamedCertificates::default()) {
        Ok(loaded) => {
            let good = loaded.iter().flat_map(|it| {
                let label = it.listener.label();
                let certificates = it.tls.certificates().into_iter();
                certificates.map(move |(file, left)| (label.clone(), file.display().to_string(), left))
            });
            SeenTls { good: good.collect(), ..seen }
        }
        Err(mistakes) => SeenTls { unusable: mistakes.iter().map(ToString::to_string).collect(), ..seen },
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
    let good = seen.good.iter().map(|(listener, file, seconds)| lasting(listener, file, *seconds));
    let to_servers = seen.to_servers.iter().map(|(upstream, shown)| to_server(upstream, shown, seen.now));
    unusable.chain(good).chain(to_servers).collect()
}

/// A certificate that is good for these seconds.
fn lasting(shown_by: &str, file: &str, seconds: u64) -> Finding {
    let days = seconds / DAY;
    if days < SOON_DAYS {
        let what = format!("{shown_by}: the certificate in {file} ends in {days} days");
        return Finding::warning(AREA, what, RENEW);
    }
    Finding::ok(AREA, format!("{shown_by}: the certificate in {file} is good for {days} days"))
}

/// A certificate that servers are shown: they refuse connections with one that is not good.
fn to_server(upstream: &str, shown: &ClientCertificate, now: u64) -> Finding {
    let (file, validity) = (shown.file.display().to_string(), shown.validity);
    if validity.not_after < now {
        let what = format!(
            "{upstream}: the certificate in {file} ended {} days ago: servers that demand one refuse it",
            (now - validity.not_after) / DAY
        );
        return Finding::problem(AREA, what, RENEW);
    }
    if now < validity.not_before {
        let what = format!(
            "{upstream}: the certificate in {file} is not good yet: servers that demand one refuse it"
        );
        return Finding::problem(
            AREA,
            what,
            "set this machine's clock, or take a certificate that is good now",
        );
    }
    lasting(upstream, &file, validity.not_after - now)
}

#[cfg(test)]
mod tests {
    use tidegate_wire::x509::Validity;

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

    #[test]
    fn a_certificate_towards_servers_that_is_not_good_now_is_a_problem() {
        let now = 1_000 * DAY;
        let of = |not_before: u64, not_after: u64| {
            let validity = Validity { not_before: not_before * DAY, not_after: not_after * DAY };
            let shown = ClientCertificate { file: "/c.pem".into(), names: Vec::new(), validity };
            let seen =
                SeenTls { to_servers: vec![("upstream \"a\"".into(), shown)], now, ..SeenTls::default() };
            judge(&seen).remove(0)
        };
        assert_eq!(of(900, 1_090).what, "upstream \"a\": the certificate in /c.pem is good for 90 days");
        let soon = of(900, 1_003);
        assert_eq!(soon.level, Level::Warning);
        assert_eq!(soon.what, "upstream \"a\": the certificate in /c.pem ends in 3 days");
        let (ended, later) = (of(900, 998), of(1_001, 1_090));
        assert_eq!([ended.level, later.level], [Level::Problem, Level::Problem]);
        assert!(ended.what.contains("ended 2 days ago"), "{}", ended.what);
        assert!(later.what.contains("is not good yet"), "{}", later.what);
    }
}
