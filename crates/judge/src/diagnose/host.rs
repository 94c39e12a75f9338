//! What the machine's host takes. A virtual machine's cores are its own only while its host lets it have them;
//! the rest is steal in proc(5), and nothing on the machine did it.
//!
//! A service whose cores are taken away for a while stalls, drifts and stands on a plateau, as a pool or a
//! slow upstream would make it do. So above [`TAKEN`] those causes are not named. Causes that are counted
//! and not timed (errors, full tables, used-up cores) stay.

use super::{CauseName, Evidence};
use crate::discover::gates::Gate;

/// Share of the cores' time from which the host's part shows in the figures.
pub const TAKEN: f64 = 0.05;

/// The largest share of its machine's time that the host took in a step, 0 to 1; `None` if it was not measured.
#[must_use]
pub fn taken(evidence: &Evidence) -> Option<f64> {
    let shares = evidence.steps.iter().filter_map(|step| step.kernel?.stolen);
    shares.reduce(f64::max)
}

/// Gate (g): whose figures they are. None when nobody looked.
#[must_use]
pub fn gate(evidence: &Evidence) -> Option<Gate> {
    let taken = taken(evidence)?;
    Some(Gate {
        id: 'g',
        rule: "the machine had its cores: its host took at most 5 % of their time in any step".to_owned(),
        passed: taken <= TAKEN,
        detail: format!("at most {:.1} %", taken * 100.0),
    })
}

/// Whether a host that takes cores away looks like this cause.
pub(super) fn looks_like(cause: CauseName) -> bool {
    use CauseName as C;
    match cause {
        C::FixedConcurrency | C::Upstream | C::PeriodicStall | C::Drift | C::RoundTripFloor => true,
        C::ServerCpu
        | C::HotThread
        | C::AcceptQueue
        | C::ServerDescriptors
        | C::ClientPorts
        | C::ClientDescriptors
        | C::GeneratorCpu
        | C::Admission
        | C::OpeningDrops
        | C::RefusedConnects
        | C::Unknown => false,
    }
}
