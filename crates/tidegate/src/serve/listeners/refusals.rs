//! What of a next configuration cannot be opened beside what stays.

use tidegate_algorithms::policy::Mistake;

use super::DeclaredListener;
use crate::config::clash;

/// Refuses two listeners at one address. No file has them, but one of the two may stay although the file has it no more.
pub(super) fn expect_distinct(after: &[&DeclaredListener]) -> Result<(), Vec<Mistake>> {
    let taken: Vec<_> = after.iter().map(|it| (it.listener.path("listen"), it.address)).collect();
    let clashing = taken.iter().enumerate().filter_map(|(index, (path, address))| {
        let problem = clash(&taken[..index], *address)?;
        Some(Mistake {
            pointer: pointer(path),
            problem: format!("{problem}, and one of the two stays until the next start"),
            accepted: "an address of its own".to_owned(),
        })
    });
    let mistakes: Vec<Mistake> = clashing.collect();
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// Refuses listeners that show ordered certificates, where none are ordered.
pub(super) fn expect_no_orders(opened: &[&DeclaredListener]) -> Result<(), Vec<Mistake>> {
    let showing = opened.iter().filter(|it| it.terms.has_acme()).map(|it| Mistake {
        pointer: pointer(&it.listener.path("tls_acme")),
        problem: "is true, and the settings of acme take effect at the next start".to_owned(),
        accepted: "false until then".to_owned(),
    });
    let mistakes: Vec<Mistake> = showing.collect();
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// A path of the configuration, as a mistake says where it is.
pub(super) fn pointer(path: &str) -> String {
    format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use crate::config::{Listener, TlsSettings};
    use crate::serve::listeners::ListenerTerms;
    use tidegate_wire::tls_version::TlsVersion;

    #[test]
    fn a_listener_that_stays_keeps_its_address_from_others() {
        let at = |listener, port| DeclaredListener {
            listener,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            terms: ListenerTerms::Settings(TlsSettings {
                certificate: None,
                key: None,
                client_ca: None,
                min_version: TlsVersion::default(),
            }),
        };
        let distinct =
            [at(Listener::HTTP, 1), at(Listener::ADMIN, 2), at(Listener::GRPC, 0), at(Listener::RESP, 0)];
        assert!(expect_distinct(&distinct.iter().collect::<Vec<_>>()).is_ok());
        let same = [at(Listener::HTTP, 1), at(Listener::ADMIN, 1)];
        let mistakes = expect_distinct(&same.iter().collect::<Vec<_>>()).unwrap_err();
        assert_eq!((mistakes.len(), &*mistakes[0].pointer), (1, "/admin/listen"));
        assert!(mistakes[0].problem.contains("as is http.listen"), "{mistakes:?}");
    }

    #[test]
    fn a_mistake_says_where_the_listener_stands() {
        assert_eq!(pointer("gateway.listener[2].listen"), "/gateway/listener/2/listen");
        assert_eq!(pointer("grpc.listen"), "/grpc/listen");
    }
}
