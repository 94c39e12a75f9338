//! Opening the stored configuration, and saying there which node this is.

use tidegate_algorithms::time::SECOND;
use tidegate_control::{Control, Limits, NodeIdentity, Place};
use tidegate_net::clock::wall;
use tidegate_net::runtime::Cores;

use super::StartError;
use super::apis::HttpSockets;
use super::file_audit::machine;
use crate::config::{NodeName, Settings};

/// The name of a node whose machine has none that can be one.
const UNNAMED: &str = "unnamed";

/// The stored configuration: shared in PostgreSQL, or this process's own file. `sockets` are those of the admin API, whose
/// address other nodes are told.
pub(super) fn open(settings: &Settings, cores: &Cores, sockets: &HttpSockets) -> Result<Control, StartError> {
    let control = opened(settings, cores)?;
    control.introduce(identity(settings, sockets));
    Ok(control)
}

/// What this node says of itself. An address of all interfaces is no address of one machine, and is not said.
fn identity(settings: &Settings, sockets: &HttpSockets) -> NodeIdentity {
    let (http, admin) = sockets.addresses();
    let named = settings.node.name.clone();
    let name = named.or_else(|| machine().and_then(|name| NodeName::checked(&name)));
    let has_tls = match admin {
        Some(_) => settings.admin.tls.certificate.is_some(),
        None => settings.http.tls.certificate.is_some(),
    };
    let address = admin.unwrap_or(http);
    let scheme = if has_tls { "https" } else { "http" };
    NodeIdentity {
        name: name.map_or_else(|| UNNAMED.to_owned(), |name| name.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ms: wall().0 / (SECOND / 1_000),
        api: (!address.ip().is_unspecified()).then(|| format!("{scheme}://{address}")),
    }
}

fn opened(settings: &Settings, cores: &Cores) -> Result<Control, StartError> {
    let (folder, limits) = (&settings.data_dir, Limits::default());
    let Some(url) = settings.control_url() else { return Ok(Control::open(folder, limits)?) };
    let control = Control::connect(Place::parse(url.expose())?, folder, limits, cores.handle(0))?;
    if control.is_from_copy() {
        tracing::warn!(
            revision = control.snapshot().revision().0,
            "the configuration's database is away: started from this node's copy of the last revision \
             it knew; changes are refused until it is back"
        );
    }
    Ok(control)
}

/// Says which stored documents are not what was put.
pub(super) fn announce_altered(control: &Control) {
    for document in control.altered() {
        tracing::error!(
            kind = %document.kind,
            name = ?document.name,
            revision = document.revision.0,
            recorded = ?document.recorded,
            "this stored document is not what was put: something else has altered the database; it is in \
             force as it is, put it again (GET /v1/set-aside)"
        );
    }
}
