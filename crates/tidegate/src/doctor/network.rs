//! The kernel's settings for connections: how many may wait to be accepted, and from how many ports a proxy can go on.
//!
//! References: the kernel's `admin-guide/sysctl/net.rst` (`somaxconn`) and `networking/ip-sysctl.rst`
//! (`ip_local_port_range`). Both hold for a network namespace, so a container may have others than its machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

use tidegate_net::listen::ListenConfig;

use super::Finding;
use crate::config::Config;

const AREA: &str = "network";

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenNetwork {
    /// Most connections that wait at a listening socket; none if the kernel does not say.
    most_waiting: Option<u64>,
    /// Ports that connections from here can have; none if the kernel does not say.
    ports: Option<u64>,
    /// Connections that clients may have at once, each of which goes on to a server; none where there is no gateway and no edge.
    forwarded: Option<u64>,
}

/// Reads the kernel's files.
pub(super) fn look(config: &Config) -> SeenNetwork {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    let is_proxy = !config.listeners.is_empty() || !config.edge_listeners.is_empty();
    SeenNetwork {
        most_waiting: read("core/somaxconn").trim().parse().ok(),
        ports: port_count(&read("ipv4/ip_local_port_range")),
        forwarded: is_proxy.then(|| config.settings.limits.connections.into()),
    }
}

/// How many ports `32768 60999` are.
fn port_count(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some(last.checked_sub(first)?.saturating_add(1))
}

/// How many connections the server asks the kernel to keep waiting.
fn backlog() -> u64 {
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    ListenConfig::new(anywhere, NonZeroUsize::MIN).backlog.into()
}

/// What follows from it.
pub(super) fn judge(seen: &SeenNetwork) -> Vec<Finding> {
    let wanted = backlog();
    let waiting = seen.most_waiting.map(|most| {
        if most >= wanted {
            return Finding::ok(AREA, format!("net.core.somaxconn is {most}: {wanted} are asked for"));
        }
        Finding::warning(
            AREA,
            format!(
                "net.core.somaxconn is {most}, and {wanted} are asked for: of connections that come at once, more than \
                 {most} at a core's listener are dropped, and their clients try again after a second"
            ),
            format!(
                "`sysctl -w net.core.somaxconn={wanted}` as root, and the same in a file of /etc/sysctl.d; for a \
                 container, --sysctl net.core.somaxconn={wanted}"
            ),
        )
    });
    let ports = seen.ports.zip(seen.forwarded).map(|(ports, forwarded)| {
        if ports >= forwarded {
            let what = format!("{ports} local ports for connections to one server, limits.connections is {forwarded}");
            return Finding::ok(AREA, what);
        }
        Finding::warning(
            AREA,
            format!(
                "net.ipv4.ip_local_port_range has {ports} ports, and limits.connections is {forwarded}: that many \
                 connections to one server cannot be had from one address"
            ),
            "`sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"` as root, and the same in a file of /etc/sysctl.d; \
             or more addresses of this machine in `sources` of the upstream, or more servers",
        )
    });
    waiting.into_iter().chain(ports).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn too_short_a_queue_and_too_few_ports_are_warnings_with_the_command_that_helps() {
        let fit = SeenNetwork { most_waiting: Some(4_096), ports: Some(28_232), forwarded: Some(15_000) };
        assert!(judge(&fit).iter().all(|found| found.level == Level::Ok), "{:?}", judge(&fit));
        let old = judge(&SeenNetwork { most_waiting: Some(128), ..fit.clone() });
        assert_eq!(old[0].level, Level::Warning);
        assert!(old[0].repair.contains("sysctl -w net.core.somaxconn=4096"), "{old:?}");
        let few = judge(&SeenNetwork { ports: Some(1_000), ..fit.clone() });
        assert_eq!(few[1].level, Level::Warning);
        assert!(few[1].repair.contains("ip_local_port_range"), "{few:?}");
        // Who connects to nobody needs no ports, and what the kernel does not say is not judged.
        assert_eq!(judge(&SeenNetwork { ports: Some(1), forwarded: None, ..fit }).len(), 1);
        assert!(judge(&SeenNetwork { most_waiting: None, ports: None, forwarded: Some(1) }).is_empty());
    }

    #[test]
    fn a_range_is_counted_with_both_ends() {
        assert_eq!(port_count("32768\t60999\n"), Some(28_232));
        for bad in ["", "1", "2 1", "a b"] {
            assert_eq!(port_count(bad), None, "{bad}");
        }
    }
}
