//! The addresses that the configuration listens on: free, taken (and by which process), or not of this machine.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::Finding;
use super::processes::{Process, Processes};
use crate::config::{Config, bound_addresses};

const AREA: &str = "ports";

/// What was seen of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenListener {
    /// The setting that names it.
    setting: String,
    address: SocketAddr,
    state: BindState,
}

/// What became of binding it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BindState {
    Free,
    /// The running server of this installation has it.
    Own,
    /// systemd holds it for the server.
    Kept,
    /// Another server has it, and ports may be shared.
    Shared,
    /// Somebody else has it; none if the kernel does not say who.
    Taken(Option<Process>),
    /// It is no address of this machine.
    Foreign,
    /// This user may not bind it.
    Forbidden,
    Other(String),
}

/// Binds each address for a moment.
pub(super) fn look(config: &Config, server: Option<&Process>, processes: &Processes) -> Vec<SeenListener> {
    let is_shared = config.settings.runtime.share_ports;
    wanted(config)
        .into_iter()
        .filter(|(_, address, _)| address.port() != 0)
        .map(|(setting, address, is_datagram)| {
            let bound = if is_datagram {
                UdpSocket::bind(address).map(drop)
            } else {
                TcpListener::bind(address).map(drop)
            };
            let state = match state(bound, server, || processes.listener(address, is_datagram)) {
                BindState::Taken(Some(other)) if other.is_tidegate() && is_shared && !is_datagram => {
                    BindState::Shared
                }
                state => state,
            };
            SeenListener { setting, address, state }
        })
        .collect()
}

/// Setting, address, and whether it is of UDP.
fn wanted(config: &Config) -> Vec<(String, SocketAddr, bool)> {
    let mut wanted = Vec::new();
    for (setting, address) in bound_addresses(config) {
        wanted.push((setting.clone(), address, false));
        if matches!(&*setting, "edge.dns_listen" | "intake.statsd_listen") {
            wanted.push((setting, address, true));
        }
    }
    wanted
}

fn state(
    bound: io::Result<()>,
    server: Option<&Process>,
    listener: impl FnOnce() -> Option<Process>,
) -> BindState {
    let Err(error) = bound else { return BindState::Free };
    match error.kind() {
        ErrorKind::AddrInUse => match (listener(), server) {
            (Some(process), Some(server)) if process.id == server.id => BindState::Own,
            // Its files are another user's, so the kernel does not say whose the port is.
            (None, Some(server)) if server.is_tidegate() => BindState::Own,
            (Some(process), _) if process.id == 1 && process.name == "systemd" => BindState::Kept,
            (process, _) => BindState::Taken(process),
        },
        ErrorKind::AddrNotAvailable => BindState::Foreign,
        ErrorKind::PermissionDenied => BindState::Forbidden,
        _ => BindState::Other(error.to_string()),
    }
}

/// What follows from it.
pub(super) fn judge(seen: &[SeenListener]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (state, said) in [
        (BindState::Free, "free"),
        (BindState::Own, "this installation's running server listens there"),
        (BindState::Kept, "systemd holds them for the server"),
        (
            BindState::Shared,
            "another server listens there, and runtime.share_ports lets this one listen beside it",
        ),
    ] {
        let such = seen.iter().filter(|it| it.state == state);
        let such: Vec<_> = such.map(|it| format!("{} {}", it.setting, it.address)).collect();
        if !such.is_empty() {
            found.push(Finding::ok(AREA, format!("{said}: {}", such.join(", "))));
        }
    }
    found.extend(seen.iter().filter_map(fault));
    found
}

fn fault(SeenListener { setting, address, state }: &SeenListener) -> Option<Finding> {
    let elsewhere = format!("choose another address for {setting}");
    let (what, repair) = match state {
        BindState::Free | BindState::Own | BindState::Kept | BindState::Shared => return None,
        BindState::Taken(Some(process)) if process.is_tidegate() => (
            format!(
                "is in use by {process}, another server of Tidegate than the one of this data directory, if there is one"
            ),
            format!("stop that one, or {elsewhere}"),
        ),
        BindState::Taken(Some(process)) => {
            (format!("is in use by {process}"), format!("stop that program, or {elsewhere}"))
        }
        BindState::Taken(None) => (
            "is in use, and the kernel does not tell this user by whom".to_owned(),
            format!("as root, `ss -lptun` says by whom: stop that program, or {elsewhere}"),
        ),
        BindState::Foreign => (
            "is no address of this machine".to_owned(),
            format!("{elsewhere}: `ip address` lists what there is, and 0.0.0.0 is all of IPv4"),
        ),
        BindState::Forbidden => (
            "is not permitted to this user: ports below 1024 need a right".to_owned(),
            format!(
                "give the server CAP_NET_BIND_SERVICE, which the systemd unit does; run the doctor as root; or {elsewhere}"
            ),
        ),
        BindState::Other(error) => (format!("cannot be listened on: {error}"), elsewhere),
    };
    Some(Finding::problem(AREA, format!("{setting} {address} {what}"), repair))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn process(id: u32, name: &str) -> Process {
        Process { id, name: name.to_owned(), is_replaced: false }
    }

    fn refused(kind: ErrorKind) -> io::Result<()> {
        Err(io::Error::from(kind))
    }

    #[test]
    fn a_port_is_free_ours_or_somebodys() {
        let server = process(7, "tidegate");
        let in_use = || refused(ErrorKind::AddrInUse);
        assert_eq!(state(Ok(()), None, || None), BindState::Free);
        assert_eq!(state(in_use(), Some(&server), || Some(server.clone())), BindState::Own);
        assert_eq!(state(in_use(), Some(&server), || None), BindState::Own);
        assert_eq!(state(in_use(), None, || Some(process(1, "systemd"))), BindState::Kept);
        let nginx = process(9, "nginx");
        assert_eq!(state(in_use(), Some(&server), || Some(nginx.clone())), BindState::Taken(Some(nginx)));
        assert_eq!(state(refused(ErrorKind::AddrNotAvailable), None, || None), BindState::Foreign);
        assert_eq!(state(refused(ErrorKind::PermissionDenied), None, || None), BindState::Forbidden);
    }

    #[test]
    fn a_fault_names_the_setting_the_address_and_who_has_it() {
        let seen = |state| SeenListener {
            setting: "http.listen".into(),
            address: ([127, 0, 0, 1], 4000).into(),
            state,
        };
        let all = [BindState::Free, BindState::Own, BindState::Taken(Some(process(9, "nginx")))].map(seen);
        let found = judge(&all);
        assert_eq!(found.len(), 3);
        let fault = &found[2];
        assert_eq!(fault.level, Level::Problem);
        assert_eq!(fault.what, "http.listen 127.0.0.1:4000 is in use by nginx (process 9)");
        assert_eq!(fault.repair, "stop that program, or choose another address for http.listen");
        for state in
            [BindState::Foreign, BindState::Forbidden, BindState::Taken(None), BindState::Other("x".into())]
        {
            assert!(!judge(&[seen(state)])[0].repair.is_empty());
        }
    }
}
