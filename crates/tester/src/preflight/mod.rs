//! Before a run: what this machine allows, in plain words, and how to spread the load over it.
//!
//! The figures come from `/proc` and `getrlimit` ([`Machine::read`]); the decision is a function of
//! them ([`decide`]), so that it is tested without a machine that lacks something.
//!
//! ```text
//!   descriptors   one per connection; a process has its limit         -> more processes
//!   ports         one per connection, target and source address       -> more source addresses
//!   memory        about 12 kB per connection, 22 kB with both ends    -> refuse
//!   cores         the generator's own limit                           -> say so
//!   /proc         what both programs use, and so the causes           -> say so
//! ```

mod contact;
mod first_reply;
mod machine;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

pub use contact::{Unreachable, contact};
pub use first_reply::first_reply;
pub use machine::{Machine, raise_descriptors};

/// Descriptors that a process needs for itself.
const OWN_DESCRIPTORS: u64 = 200;
/// Kernel and user memory of one connection's one end, in bytes.
const BYTES_PER_END: u64 = 11_000;
/// Connections per loopback address: less than half the usual range, because the kernel tries the
/// even half of the ports first and slows down as it fills.
const PER_LOOPBACK_ADDRESS: u64 = 12_000;
/// Worker processes, at most.
const MAX_PROCESSES: u64 = 64;

/// What a run asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The most connections at a time.
    pub connections: u32,
    /// Where they go.
    pub target: SocketAddr,
    /// Local addresses that were given; empty: choose.
    pub sources: Vec<IpAddr>,
    /// A connection for each request: each leaves its port in TIME-WAIT for a minute.
    pub per_request: bool,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is as it should be.
    Fine,
    /// The run goes on, in a way that is said here.
    Note,
    /// The run cannot do what was asked.
    Blocked,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How serious.
    pub severity: Severity,
    /// What, in plain words.
    pub text: String,
    /// The command that lifts the limit.
    pub remedy: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            Severity::Blocked => "BLOCKED",
        };
        write!(out, "{mark:<8}{}", self.text)?;
        match &self.remedy {
            Some(remedy) => write!(out, "\n        lift it with: {remedy}"),
            None => Ok(()),
        }
    }
}

/// How a run is spread, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Generator processes, at least 1.
    pub processes: u32,
    /// Local addresses to connect from; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// What was found, in the order: descriptors, ports, memory, cores, queue.
    pub findings: Vec<Finding>,
}

impl Decision {
    /// Whether something forbids the run.
    #[must_use]
    pub fn blocked(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Blocked)
    }
}

/// Decides how to spread `need` over `machine`.
#[must_use]
pub fn decide(machine: &Machine, need: &Need) -> Decision {
    let (processes, descriptors) = descriptors(machine, need);
    let (sources, ports) = ports(machine, need);
    let mut findings = vec![descriptors, ports, memory(machine, need), cores(machine, need)];
    findings.extend(queue(machine, need));
    findings.extend(sight(machine));
    Decision { processes, sources, findings }
}

fn finding(severity: Severity, text: String, remedy: Option<String>) -> Finding {
    Finding { severity, text, remedy }
}

fn descriptors(machine: &Machine, need: &Need) -> (u32, Finding) {
    let connections = u64::from(need.connections);
    let Some(limit) = machine.descriptors_hard else {
        let text = format!("{connections} connections; descriptors have no limit");
        return (1, finding(Severity::Fine, text, None));
    };
    let usable = limit.saturating_sub(OWN_DESCRIPTORS);
    let processes = if usable == 0 { u64::MAX } else { connections.div_ceil(usable) };
    let remedy = Some(format!("ulimit -n {} (or LimitNOFILE= in its unit)", connections + OWN_DESCRIPTORS));
    let whole = machine.files.filter(|(open, most)| connections.saturating_add(*open) > *most);
    let found = if let Some((_, most)) = whole {
        let text = format!("{connections} connections; the whole system may open {most} files");
        finding(Severity::Blocked, text, Some(format!("sysctl -w fs.file-max={}", 4 * connections)))
    } else if processes > MAX_PROCESSES {
        let text = format!(
            "{connections} connections; a process may hold {limit} descriptors, and {MAX_PROCESSES} processes are the most"
        );
        finding(Severity::Blocked, text, remedy)
    } else if processes > 1 {
        let text = format!(
            "{connections} connections over {processes} processes: each may hold {limit} descriptors"
        );
        finding(Severity::Note, text, remedy)
    } else {
        finding(
            Severity::Fine,
            format!("{connections} connections fit {limit} descriptors of one process"),
            None,
        )
    };
    (processes.clamp(1, MAX_PROCESSES) as u32, found)
}

fn ports(machine: &Machine, need: &Need) -> (Vec<IpAddr>, Finding) {
    let connections = u64::from(need.connections);
    let (low, high) = machine.port_range;
    let range = u64::from(high.saturating_sub(low)) + 1;
    let loopback = matches!(need.target.ip(), IpAddr::V4(address) if address.is_loopback());
    let wider = "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"";
    let mut sources = need.sources.clone();
    if sources.is_empty() && loopback && (connections > PER_LOOPBACK_ADDRESS || need.per_request) {
        let least = if need.per_request { 16 } else { 1 };
        let count = connections.div_ceil(PER_LOOPBACK_ADDRESS).max(least).min(4_096);
        // 127.0.0.1 itself is left to everybody else.
        sources = (0..count as u32).map(|index| Ipv4Addr::from(0x7f00_0002 + index).into()).collect();
    }
    let addresses = sources.len().max(1) as u64;
    let allowed = range * addresses;
    let found = if connections > allowed {
        let text = format!(
            "{connections} connections to one target need as many ports; {addresses} source address(es) with ports {low}-{high} give {allowed}"
        );
        let more = connections.div_ceil(range) - addresses;
        let also = format!("{wider}; or give {more} more addresses of this machine with --sources");
        finding(Severity::Blocked, text, Some(also))
    } else if sources.len() > need.sources.len() {
        let text = format!("connecting from {addresses} loopback addresses, each has ports {low}-{high}");
        finding(Severity::Note, text, None)
    } else if need.per_request {
        let text = format!(
            "a connection per request leaves its port in TIME-WAIT for 60 s: {} new connections a second are the most over {addresses} address(es)",
            allowed / 60
        );
        finding(Severity::Note, text, Some(wider.to_owned()))
    } else {
        finding(Severity::Fine, format!("{connections} connections fit {allowed} ports"), None)
    };
    (sources, found)
}

fn memory(machine: &Machine, need: &Need) -> Finding {
    let ends = if need.target.ip().is_loopback() { 2 } else { 1 };
    let needed = u64::from(need.connections) * BYTES_PER_END * ends;
    let mb = |bytes: u64| bytes / 1_000_000;
    let Some(available) = machine.memory_available else {
        let text = format!("about {} MB for connections; how much is available cannot be read", mb(needed));
        return finding(Severity::Note, text, None);
    };
    let text = format!("about {} MB for connections, {} MB are available", mb(needed), mb(available));
    if needed > available {
        let remedy = "fewer connections, or more memory: there is no setting for it".to_owned();
        finding(Severity::Blocked, text, Some(remedy))
    } else if needed * 2 > available {
        finding(Severity::Note, text, None)
    } else {
        finding(Severity::Fine, text, None)
    }
}

fn cores(machine: &Machine, need: &Need) -> Finding {
    let text = format!("{} cores for the generator", machine.cores);
    if need.target.ip().is_loopback() {
        let text =
            format!("{text}, shared with the target: what they do to one another is part of the result");
        finding(Severity::Note, text, None)
    } else {
        finding(Severity::Fine, text, None)
    }
}

fn queue(machine: &Machine, need: &Need) -> Option<Finding> {
    let local = need.target.ip().is_loopback();
    (local && u64::from(need.connections) > machine.somaxconn).then(|| {
        let text = format!(
            "listeners here queue at most {} connections; they are opened in parts",
            machine.somaxconn
        );
        finding(Severity::Note, text, Some(format!("sysctl -w net.core.somaxconn={}", need.connections)))
    })
}

fn sight(machine: &Machine) -> Option<Finding> {
    let text = "there is no /proc, so the CPU that the server and the generator use cannot be measured: no cause will be named, and a step that the generator limited is not told from others";
    (!machine.shows_programs)
        .then(|| finding(Severity::Note, text.to_owned(), Some("mount -t proc proc /proc".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Machine = Machine {
        descriptors_hard: Some(20_000),
        files: Some((1_000, 2_000_000)),
        port_range: (32_768, 60_999),
        somaxconn: 4_096,
        memory_available: Some(20_000_000_000),
        shows_programs: true,
        cores: 2,
    };

    fn need(connections: u32, target: &str) -> Need {
        Need { connections, target: target.parse().unwrap(), sources: Vec::new(), per_request: false }
    }

    #[test]
    fn a_small_run_needs_nothing() {
        let decision = decide(&MACHINE, &need(100, "10.0.0.1:80"));
        assert_eq!((decision.processes, decision.sources.len(), decision.blocked()), (1, 0, false));
        assert!(decision.findings.iter().all(|finding| finding.severity == Severity::Fine));
    }

    #[test]
    fn nineteen_thousand_fit_one_process_of_twenty_thousand_descriptors() {
        assert_eq!(decide(&MACHINE, &need(19_000, "127.0.0.1:80")).processes, 1);
    }

    #[test]
    fn two_hundred_thousand_are_spread_by_themselves_on_loopback() {
        let decision = decide(&MACHINE, &need(200_000, "127.0.0.1:80"));
        assert!(!decision.blocked(), "{:#?}", decision.findings);
        assert_eq!((decision.processes, decision.sources.len()), (11, 17));
        assert_eq!(decision.sources[0], IpAddr::from([127, 0, 0, 2]));
    }

    #[test]
    fn a_remote_target_beyond_the_ports_is_refused_with_the_command() {
        let decision = decide(&MACHINE, &need(30_000, "10.0.0.1:80"));
        assert!(decision.blocked());
        let shown = decision.findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
        assert!(
            shown.contains("give 28232") && shown.contains("ip_local_port_range") && shown.contains("1 more"),
            "{shown}"
        );
    }

    #[test]
    fn memory_and_files_of_the_system_are_bounds_too() {
        let poor = Machine { memory_available: Some(1_000_000_000), ..MACHINE };
        assert!(decide(&poor, &need(200_000, "127.0.0.1:80")).blocked());
        let few = Machine { files: Some((1_000, 50_000)), ..MACHINE };
        assert!(decide(&few, &need(60_000, "127.0.0.1:80")).blocked());
    }

    #[test]
    fn what_cannot_be_read_is_not_a_number() {
        let blind = Machine {
            descriptors_hard: None,
            files: None,
            memory_available: None,
            shows_programs: false,
            ..MACHINE
        };
        let decision = decide(&blind, &need(100_000, "127.0.0.1:80"));
        assert!(!decision.blocked() && decision.processes == 1, "{decision:?}");
        let said: String = decision.findings.iter().map(|finding| format!("{finding}\n")).collect();
        assert!(said.contains("cannot be read") && said.contains("no cause will be named"), "{said}");
        assert!(!said.contains("18446744073709"), "{said}");
    }

    proptest! {
        #[test]
        fn what_is_not_blocked_fits(connections in 1u32..1_000_000, descriptors in 1_024u64..1_000_000, high in 33_000u16..65_535) {
            let machine = Machine { descriptors_hard: Some(descriptors), port_range: (32_768, high), ..MACHINE };
            let decision = decide(&machine, &need(connections, "127.0.0.1:80"));
            if !decision.blocked() {
                let each = u64::from(connections).div_ceil(decision.processes.into());
                prop_assert!(each + OWN_DESCRIPTORS <= descriptors);
                let ports = u64::from(high - 32_768 + 1) * decision.sources.len().max(1) as u64;
                prop_assert!(u64::from(connections) <= ports);
            }
        }
    }
}
