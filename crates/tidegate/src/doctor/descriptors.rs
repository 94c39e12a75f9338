//! File descriptors: as many as the connections that the configuration allows, and what else the server opens.

use std::fs;

use tidegate_tester::evidence::process::descriptor_limit;

use super::Finding;
use super::processes::Process;
use crate::config::Config;

const AREA: &str = "descriptors";
/// Files, the event loops of cores, stores, and connections for the operator's pages.
const OWN: u64 = 512;

/// What was seen of the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenDescriptors {
    /// The soft limit; none if the kernel does not say.
    limit: Option<u64>,
    /// Connections that clients may have at once.
    clients: u64,
    /// Whether each of them may take a second one, to a server behind.
    is_proxy: bool,
    /// Whose limit it is.
    server: Option<Process>,
}

/// Reads the limit of the running server; of this process where none runs.
pub(super) fn look(config: &Config, server: Option<&Process>) -> SeenDescriptors {
    let of = |id: &str| fs::read_to_string(format!("/proc/{id}/limits")).ok();
    let (text, server) = match server.and_then(|it| Some((of(&it.id.to_string())?, it))) {
        Some((text, server)) => (Some(text), Some(server.clone())),
        None => (of("self"), None),
    };
    SeenDescriptors {
        limit: text.as_deref().and_then(descriptor_limit),
        clients: config.settings.limits.connections.into(),
        is_proxy: !config.listeners.is_empty() || !config.edge_listeners.is_empty(),
        server,
    }
}

/// What follows from it.
pub(super) fn judge(SeenDescriptors { limit, clients, is_proxy, server }: &SeenDescriptors) -> Vec<Finding> {
    let Some(limit) = limit else { return Vec::new() };
    let per_client = if *is_proxy { 2 } else { 1 };
    let needed = clients.saturating_mul(per_client).saturating_add(OWN);
    let whose = match server {
        Some(server) => format!("{server} may have"),
        None => "a server started from here may have".to_owned(),
    };
    let why = match is_proxy {
        true => format!("limits.connections is {clients}, and each may need one more to a server behind"),
        false => format!("limits.connections is {clients}"),
    };
    if *limit >= needed {
        let limit = if *limit == u64::MAX { "any number of".to_owned() } else { limit.to_string() };
        return vec![Finding::ok(
            AREA,
            format!("{whose} {limit} descriptors, and {needed} are enough ({why})"),
        )];
    }
    let what = format!(
        "{whose} {limit} descriptors, and {needed} are needed ({why}): beyond them connections wait in the kernel's queue"
    );
    let repair = format!(
        "LimitNOFILE={needed} in the systemd unit, `ulimit -n {needed}` in a shell, --ulimit nofile={needed} for a \
         container; or lower limits.connections"
    );
    vec![Finding::warning(AREA, what, repair)]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_proxy_needs_two_descriptors_for_each_connection() {
        let seen = SeenDescriptors { limit: Some(20_000), clients: 15_000, is_proxy: false, server: None };
        assert_eq!(judge(&seen)[0].level, Level::Ok);
        let proxy = judge(&SeenDescriptors { is_proxy: true, ..seen.clone() });
        assert_eq!(proxy[0].level, Level::Warning);
        assert!(proxy[0].repair.contains("LimitNOFILE=30512"), "{proxy:?}");
        let server = Some(Process { id: 7, name: "tidegate".into(), is_replaced: false });
        let low = judge(&SeenDescriptors { limit: Some(1_024), server, ..seen.clone() });
        assert!(low[0].what.starts_with("tidegate (process 7) may have 1024 descriptors"), "{low:?}");
        assert_eq!(judge(&SeenDescriptors { limit: Some(u64::MAX), ..seen.clone() })[0].level, Level::Ok);
        assert!(judge(&SeenDescriptors { limit: None, ..seen }).is_empty());
    }
}
