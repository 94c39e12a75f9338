//! ACME in the process: where it stores, whose listeners show what it orders, and what is said of it.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_certificates::Acme;
use tidegate_control::Control;
use tidegate_net::tls::NamedCertificates;

use super::StartError;
use crate::config::Config;

/// What orders the names of `config`, if there are any. The certificates that are stored are in force at the listeners of
/// `named` when this returns.
pub(super) fn start(
    config: &Config,
    control: Control,
    named: NamedCertificates,
) -> Result<Option<Arc<Acme>>, StartError> {
    let Some(acme) = config.acme().map_err(StartError::Acme)? else { return Ok(None) };
    let started = Acme::start(acme, control, named);
    started.map(Some).map_err(|error| StartError::Acme(error.to_string()))
}

/// For how long the certificates of names are good, and how orders fare. The configuration bounds the names.
pub(super) struct AcmeMetrics(pub(super) Arc<Acme>);

impl Family for AcmeMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = self.0.status();
        let help = "Seconds for which the certificate of a name is still good; 0: there is none";
        families.gauges("tidegate_acme_certificate_seconds_left", help, |series| {
            status.iter().try_for_each(|it| series(&[("name", &it.name)], it.seconds_left.unwrap_or(0)))
        })?;
        let help = "Orders of a name that failed since its last success";
        families.gauges("tidegate_acme_failures", help, |series| {
            status.iter().try_for_each(|it| series(&[("name", &it.name)], u64::from(it.failures)))
        })?;
        let counts = self.0.counts();
        families.counters("tidegate_acme_orders", "Orders of this node", |series| {
            series(&[("result", "issued")], counts.issued)?;
            series(&[("result", "failed")], counts.failed)
        })
    }
}
