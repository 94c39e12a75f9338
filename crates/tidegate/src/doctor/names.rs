//! The names that the configuration has of other machines: servers of upstreams, backends of the edge, and where alerts and
//! telemetry are sent. Whether the store can be reached is the store's own area.
//!
//! Each name is looked up in a thread of its own, by the system's resolver as the server does it, and all of them together within
//! a bound: a resolver that does not answer would hold the doctor for half a minute a name.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::{Host, Target};

use super::Finding;
use crate::config::Config;

const AREA: &str = "names";
/// How long all names together may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most names that are looked up.
const MOST: usize = 100;

/// A name, and what came of looking it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenName {
    name: String,
    /// What has it.
    whose: String,
    /// Why it has no address.
    failure: Option<String>,
}

/// Looks all names up.
pub(super) fn look(config: &Config) -> Vec<SeenName> {
    let begun = monotonic();
    let asked: Vec<_> = wanted(config)
        .into_iter()
        .take(MOST)
        .map(|(name, whose)| {
            let (sender, answer) = sync_channel(1);
            let asked = name.clone();
            thread::spawn(move || {
                let found = (asked.as_str(), 0_u16).to_socket_addrs();
                let failure = match found.map(|mut addresses| addresses.next()) {
                    Ok(Some(_)) => None,
                    Ok(None) => Some("it has no address".to_owned()),
                    Err(error) => Some(error.to_string()),
                };
                // Nobody waits any more once the time is over.
                drop(sender.send(failure));
            });
            (name, whose, answer)
        })
        .collect();
    let seen = asked.into_iter().map(|(name, whose, answer)| {
        let failure = match answer.recv_timeout(DEADLINE.saturating_sub(begun.elapsed())) {
            Ok(failure) => failure,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Some(format!("no answer within {} s", DEADLINE.as_secs()))
            }
        };
        SeenName { name, whose, failure }
    });
    seen.collect()
}

/// Each name, with the first that has it.
fn wanted(config: &Config) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    let mut add = |target: &Target, whose: String| {
        if let Host::Name(name) = &target.host {
            wanted.entry(name.to_string()).or_insert(whose);
        }
    };
    for upstream in config.gateway.config().upstreams {
        for server in &upstream.servers {
            add(&server.backend.target, format!("upstream {:?}", upstream.name));
        }
    }
    for backend in &config.edge.config.backends {
        add(&backend.target, format!("backend {:?} of the edge", backend.name));
    }
    if let Some(url) = &config.settings.intake.alert_webhook {
        add(url.0.target(), "intake.alert_webhook".to_owned());
    }
    if let Some(url) = &config.settings.telemetry.endpoint {
        add(url.0.target(), "telemetry.endpoint".to_owned());
    }
    wanted
}

/// What follows from it.
pub(super) fn judge(seen: &[SeenName]) -> Vec<Finding> {
    let known: Vec<&str> = seen.iter().filter(|it| it.failure.is_none()).map(|it| it.name.as_str()).collect();
    let known =
        (!known.is_empty()).then(|| Finding::ok(AREA, format!("have addresses: {}", known.join(", "))));
    let failed = seen.iter().filter_map(|SeenName { name, whose, failure }| {
        let failure = failure.as_ref()?;
        Some(Finding::problem(
            AREA,
            format!("{name} of {whose} has no address: {failure}"),
            format!(
                "`getent hosts {name}` asks the same resolver. If the name is spelt as it should be, mend /etc/resolv.conf or \
                 /etc/hosts here, or the service that the name is of"
            ),
        ))
    });
    known.into_iter().chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::config::{Environment, File, Flags, load};

    #[test]
    fn each_name_is_looked_up_once_and_one_without_an_address_is_a_problem() {
        let file = "[[upstream]]\nname = \"app\"\nservers = [\"http://localhost:1\", \"http://127.0.0.1:2\", \"http://absent.invalid:3\"]\n\
                    [[upstream]]\nname = \"other\"\nservers = [\"http://localhost:4\"]\n\
                    [intake]\nalert_webhook = \"http://localhost:5/alerts\"\n";
        let file = File { name: "t.toml", bytes: file.as_bytes() };
        let config = load(Some(file), &Environment::default(), &Flags::default()).unwrap().config;
        let wanted = wanted(&config);
        let names: Vec<_> = wanted.iter().map(|(name, whose)| (name.as_str(), whose.as_str())).collect();
        let app = "upstream \"app\"";
        assert_eq!(names, [("absent.invalid", app), ("localhost", app)]);
        let found = judge(&look(&config));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].level, &*found[0].what), (Level::Ok, "have addresses: localhost"));
        assert_eq!(found[1].level, Level::Problem);
        assert!(
            found[1].what.starts_with("absent.invalid of upstream \"app\" has no address: "),
            "{found:?}"
        );
        assert!(found[1].repair.starts_with("`getent hosts absent.invalid`"), "{found:?}");
        assert!(judge(&[]).is_empty());
    }
}
