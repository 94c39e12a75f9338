//! What becomes of each listener when the configuration changes: a comparison of what is declared before and after.
//!
//! A listener is known by its service and its address, never by its place in a list: one that stands before it may go.
//! Sockets belong to nobody: they stay where any service listens at their address afterwards. Addresses with port 0 stand for
//! ports that the kernel chose, so their sockets stay with their service.

use std::net::SocketAddr;

use tidegate_edge::config::ListenerConfig;

use crate::config::{GatewayListener, Listener, TlsSettings};

/// What a listener is made of, beside its address.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::serve) enum ListenerTerms {
    /// The TLS in its group of settings.
    Settings(TlsSettings),
    /// All of a `[[gateway.listener]]`.
    Gateway(Box<GatewayListener>),
    /// What of an `[[edge.listener]]` a connection meets first. The rest changes in the open one.
    Edge(Box<ListenerConfig>),
}

impl ListenerTerms {
    /// Whether it shows certificates that are ordered.
    pub(super) fn has_acme(&self) -> bool {
        match self {
            Self::Settings(_) => false,
            Self::Gateway(listener) => listener.tls.acme,
            Self::Edge(listener) => listener.tls.acme,
        }
    }
}

/// A listener as the configuration declares it.
#[derive(Clone, Debug)]
pub(in crate::serve) struct DeclaredListener {
    pub(in crate::serve) listener: Listener,
    /// The address that it is to have. Port 0 stands for one that the kernel chooses.
    pub(in crate::serve) address: SocketAddr,
    pub(in crate::serve) terms: ListenerTerms,
}

impl DeclaredListener {
    fn is(&self, other: &Self) -> bool {
        self.address == other.address
            && self.listener.server() == other.listener.server()
            && self.terms == other.terms
    }

    /// Whether the sockets of this are what the other one needs.
    fn has_sockets_for(&self, other: &Self) -> bool {
        let is_of_same = self.listener.server() == other.listener.server();
        self.address == other.address && (self.address.port() != 0 || is_of_same)
    }
}

/// How a declared listener comes to its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketsFrom {
    /// It is the open one at this place.
    Itself(usize),
    /// It takes the sockets of the open one at this place, which stops accepting.
    Another(usize),
    /// It is bound.
    Kernel,
}

/// Where each listener of `after` has its sockets from. What is in none of these is closed.
pub(super) fn compare(before: &[DeclaredListener], after: &[&DeclaredListener]) -> Vec<SocketsFrom> {
    let mut left: Vec<usize> = (0..before.len()).collect();
    let mut find = |is_it: &dyn Fn(&DeclaredListener) -> bool| {
        let found = left.iter().position(|place| is_it(&before[*place]))?;
        Some(left.remove(found))
    };
    // First what stays, so that nobody takes its sockets.
    let kept: Vec<Option<usize>> = after.iter().map(|wanted| find(&|open| open.is(wanted))).collect();
    let mut ways = Vec::with_capacity(after.len());
    for (kept, wanted) in kept.into_iter().zip(after) {
        ways.push(match kept {
            Some(place) => SocketsFrom::Itself(place),
            None => {
                find(&|open| open.has_sockets_for(wanted)).map_or(SocketsFrom::Kernel, SocketsFrom::Another)
            }
        });
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tidegate_wire::tls_version::TlsVersion;

    fn declared(listener: Listener, port: u16, certificate: Option<&str>) -> DeclaredListener {
        let certificate = certificate.map(PathBuf::from);
        let min_version = TlsVersion::default();
        let tls = TlsSettings { key: certificate.clone(), certificate, client_ca: None, min_version };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        DeclaredListener { listener, address, terms: ListenerTerms::Settings(tls) }
    }

    fn ways(before: &[DeclaredListener], after: &[DeclaredListener]) -> Vec<SocketsFrom> {
        compare(before, &after.iter().collect::<Vec<_>>())
    }

    #[test]
    fn listeners_that_are_the_same_stay_and_others_are_told_apart() {
        let before = [declared(Listener::GRPC, 1, None), declared(Listener::RESP, 2, Some("a"))];
        assert_eq!(ways(&before, &before), [SocketsFrom::Itself(0), SocketsFrom::Itself(1)]);
        let moved = [declared(Listener::GRPC, 3, None), declared(Listener::RESP, 2, Some("b"))];
        assert_eq!(ways(&before, &moved), [SocketsFrom::Kernel, SocketsFrom::Another(1)]);
        let swapped = [declared(Listener::GRPC, 2, None), declared(Listener::RESP, 1, Some("a"))];
        assert_eq!(ways(&before, &swapped), [SocketsFrom::Another(1), SocketsFrom::Another(0)]);
        assert!(ways(&before, &[]).is_empty());
    }

    #[test]
    fn ports_that_the_kernel_chose_stay_with_their_service() {
        let before = [declared(Listener::GRPC, 0, None), declared(Listener::RESP, 0, None)];
        assert_eq!(ways(&before, &before), [SocketsFrom::Itself(0), SocketsFrom::Itself(1)]);
        let secured = [declared(Listener::RESP, 0, Some("a"))];
        assert_eq!(ways(&before, &secured), [SocketsFrom::Another(1)]);
        assert_eq!(ways(&before[..1], &secured), [SocketsFrom::Kernel]);
    }

    #[test]
    fn another_version_of_tls_is_another_listener_at_the_same_sockets() {
        let before = [declared(Listener::HTTP, 1, Some("a"))];
        let mut after = before.clone();
        let ListenerTerms::Settings(tls) = &mut after[0].terms else { panic!("it is of a group") };
        tls.min_version = TlsVersion::Tls13;
        assert_eq!(ways(&before, &after), [SocketsFrom::Another(0)]);
    }

    #[test]
    fn a_listener_of_a_list_stays_when_one_before_it_goes() {
        let at = |place, port| declared(Listener::gateway(place), port, None);
        assert_eq!(ways(&[at(0, 1), at(1, 2)], &[at(0, 2)]), [SocketsFrom::Itself(1)]);
    }
}
