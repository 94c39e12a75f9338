//! For how long the certificates in force are good, and how the last rotation went (fault 42's gauge).

use std::fmt;

use tidegate_net::tls::{Tls, TlsStatus};

use crate::{Families, Family};

/// Most certificates of files that have a gauge of their own.
const MAX_NAMES: usize = 1_000;

/// Each server that speaks TLS now, and its TLS.
type OfServers = dyn Fn() -> Vec<(String, Tls)> + Send + Sync;

/// The certificates of the servers that speak TLS, by the server's name.
pub struct Certificates {
    servers: Box<OfServers>,
}

impl Certificates {
    /// Those of the servers that `servers` names at each look.
    #[must_use]
    pub fn new(servers: impl Fn() -> Vec<(String, Tls)> + Send + Sync + 'static) -> Self {
        Self { servers: Box::new(servers) }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Family for Certificates {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let servers = (self.servers)();
        if servers.is_empty() {
            return Ok(());
        }
        let each = |write: &mut dyn FnMut(&str, TlsStatus) -> fmt::Result| {
            servers.iter().try_for_each(|(server, tls)| write(server, tls.status()))
        };
        let help = "Seconds for which the certificate of the files in force is still good";
        families.gauges("tidegate_tls_certificate_seconds_left", help, |series| {
            each(&mut |server, status| match status.seconds_left() {
                Some(left) => series(&[("server", server)], left),
                None => Ok(()),
            })
        })?;
        let help = "Seconds for which a certificate of files is still good, by the first name in it";
        families.gauges("tidegate_tls_certificate_name_seconds_left", help, |series| {
            let of_server = |(server, tls): &(String, Tls)| {
                let server = server.clone();
                tls.seconds_left_by_name().into_iter().map(move |(name, left)| (server.clone(), name, left))
            };
            let mut all = servers.iter().flat_map(of_server).take(MAX_NAMES);
            all.try_for_each(|(server, name, left)| {
                series(&[("server", server.as_str()), ("name", name.as_str())], left)
            })
        })?;
        let help = "1 if the present content of the certificate's files is in force, 0 if it was refused";
        families.gauges("tidegate_tls_last_reload_successful", help, |series| {
            each(&mut |server, status| series(&[("server", server)], u64::from(status.is_reload_good)))
        })?;
        families.gauges("tidegate_tls_handshakes_in_flight", "TLS handshakes under way", |series| {
            each(&mut |server, status| series(&[("server", server)], status.handshaking as u64))
        })?;
        families.counters("tidegate_tls_reloads", "Reloads of the certificate's files", |series| {
            each(&mut |server, status| {
                series(&[("server", server), ("result", "applied")], status.applied)?;
                series(&[("server", server), ("result", "refused")], status.refused)
            })
        })
    }
}
