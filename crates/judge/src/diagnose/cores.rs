//! Use of the server's cores: by the server, by the generator beside it, by others, or by nothing.
//!
//! A service that waits (for a pool, a distance, an upstream) leaves cores idle. On a machine without an
//! idle core everything waits for the cores first, and what then looks like a pool is the machine: so no
//! verdict of waiting is given there ([`none_idle`]).

use serde::{Deserialize, Serialize};

use super::{Evidence, StepEvidence};

/// Idle cores from which a machine has one left, however many cores it has.
const IDLE_CORE: f64 = 1.0;
/// Share of a small machine's cores that is left idle when it has one to spare.
const IDLE_SHARE: f64 = 0.30;
/// Share of the cores that the kernel's own work for the traffic may take beside both programs.
const KERNEL: f64 = 0.10;

/// The processes that had the larger part of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// The server.
    Server,
    /// The load generator.
    Generator,
    /// Neither of them.
    Others,
}

/// The use of the cores that the server may use, in cores; means over steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Cores there are.
    pub cores: f64,
    /// Used by the server.
    pub server: f64,
    /// Used by the generator; 0 when it has cores of its own.
    pub generator: f64,
    /// Used by nobody.
    pub idle: f64,
}

impl CoreUse {
    /// None when the server's process or its machine was not seen.
    #[must_use]
    pub fn of(steps: &[&StepEvidence]) -> Option<Self> {
        let seen: Vec<Self> = steps.iter().filter_map(|step| Self::in_step(step)).collect();
        let mean = |part: fn(&Self) -> f64| seen.iter().map(part).sum::<f64>() / seen.len() as f64;
        (!seen.is_empty()).then(|| Self {
            cores: mean(|used| used.cores),
            server: mean(|used| used.server),
            generator: mean(|used| used.generator),
            idle: mean(|used| used.idle),
        })
    }

    fn in_step(step: &StepEvidence) -> Option<Self> {
        let (kernel, server) = (step.kernel?, step.server.as_ref()?);
        let cores = kernel.cores?;
        let shared = kernel.machine_cores.is_none_or(|all| cores > all - 0.5);
        let generator = step.step.generator.cpu_seconds / step.step.seconds.max(1e-9);
        Some(Self {
            cores,
            server: server.cpu,
            generator: if shared { generator } else { 0.0 },
            idle: kernel.idle? * cores,
        })
    }

    /// Used by neither, the kernel's own work left out.
    #[must_use]
    pub fn others(&self) -> f64 {
        (self.cores * (1.0 - KERNEL) - self.idle - self.server - self.generator).max(0.0)
    }

    /// The processes that had most of the cores.
    pub(super) fn taker(&self) -> Taker {
        if self.others() >= self.server.max(self.generator) {
            Taker::Others
        } else if self.server >= self.generator {
            Taker::Server
        } else {
            Taker::Generator
        }
    }

    /// The use in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "of the {:.0} cores that the server may use it had {:.2}, the load generator {:.2}, others {:.2}; {:.2} were idle",
            self.cores,
            self.server,
            self.generator,
            self.others(),
            self.idle,
        )
    }
}

/// Whether the machine had no idle core from the load in question on; false if it was not measured.
pub(super) fn none_idle(evidence: &Evidence) -> bool {
    let seen = |step: &StepEvidence| {
        let kernel = step.kernel?;
        // Of a machine whose cores were not counted only the share is known.
        let cores = kernel.cores.unwrap_or(1.0);
        Some((kernel.idle? * cores, cores))
    };
    let steps: Vec<(f64, f64)> = evidence.saturated().into_iter().filter_map(seen).collect();
    let (idle, cores) = steps.iter().fold((0.0, 0.0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
    let steps = steps.len() as f64;
    steps > 0.0 && idle < (IDLE_SHARE * cores).min(IDLE_CORE * steps)
}
