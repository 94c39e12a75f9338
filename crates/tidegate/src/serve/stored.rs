//! Opening the stored configuration.

use tidegate_control::{Control, Limits, Place};
use tidegate_net::runtime::Cores;

use super::StartError;
use crate::config::Settings;

/// The stored configuration: shared in PostgreSQL, or this process's own file.
pub(super) fn open(settings: &Settings, cores: &Cores) -> Result<Control, StartError> {
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
