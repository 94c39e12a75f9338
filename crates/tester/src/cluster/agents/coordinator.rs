//! The coordinator's side: which agents there are, what becomes of a step in which one is lost.
//!
//! An agent that is lost before the step has begun costs the step nothing: it is begun again by the others. One that is lost
//! later takes its share of the step with it; a search, which compares steps, has the step run again instead
//! ([`Agents::repeating`]). Before the first step every agent must be there: one that is not is a mistake of whoever lists it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tidegate_net::clock::wall;

use super::step::{SILENCE, StepOfAgents};
use super::{
    AgentCall, AgentError, AgentLink, AgentOrder, AgentProfile, AgentStop, MAX_AGENTS, StatedVersion,
};
use crate::{
    cluster::{ClusterError, Job},
    load::{OnProgress, Stop},
    preflight::{Decision, Machine, Need, decide},
};
use tidegate_judge::measurement::{AgentShare, Measurement, StepPlan};

/// The agents of a run; dropping it makes those that are left free for others.
pub struct Agents {
    met: Vec<MetAgent>,
    version: String,
    run: String,
    processes: u32,
    threads: u32,
    contact: bool,
    repeats: bool,
    has_run: bool,
    /// Steps that were ordered.
    steps: u64,
    /// After how long without a word an agent is lost.
    silence: Duration,
}

struct MetAgent {
    link: Arc<dyn AgentLink>,
    machine: Machine,
}

impl Agents {
    /// Asks all of them who they are.
    ///
    /// # Errors
    /// The first that does not answer, or is not this `version`; when one is listed twice, or there are none or more than 1,000.
    pub fn meet(links: Vec<Arc<dyn AgentLink>>, version: &str) -> Result<Self, ClusterError> {
        if links.is_empty() || links.len() > MAX_AGENTS as usize {
            let reason = format!("1 to {MAX_AGENTS} are needed");
            return Err(ClusterError::Agent { agent: "list".to_owned(), reason });
        }
        let mut met: Vec<MetAgent> = Vec::new();
        for link in links {
            if met.iter().any(|known| known.link.address() == link.address()) {
                return Err(failed(&*link, &AgentError("it is listed twice".to_owned())));
            }
            let machine = machine(&*link, version).map_err(|error| failed(&*link, &error))?;
            met.push(MetAgent { link, machine });
        }
        Ok(Self {
            met,
            version: version.to_owned(),
            run: format!("{}-{}", std::process::id(), wall().0),
            processes: 1,
            threads: 1,
            contact: true,
            repeats: false,
            has_run: false,
            steps: 0,
            silence: SILENCE,
        })
    }

    /// What the machine of each allows of its share, by the agents' addresses. All have as many processes as the one that needs most,
    /// and as many threads as the one with the fewest cores, so that shares are equal.
    pub fn decide(&mut self, need: &Need) -> Vec<(String, Decision)> {
        let parts = self.met.len() as u32;
        let need = Need { connections: need.connections.div_ceil(parts.max(1)), ..need.clone() };
        let found: Vec<(String, Decision)> =
            self.met.iter().map(|met| (met.link.address().to_owned(), decide(&met.machine, &need))).collect();
        self.processes = found.iter().map(|(_, decision)| decision.processes).max().unwrap_or(1);
        self.threads = self.fewest_cores();
        found
    }

    /// With so many processes and threads of each instead, where they are stated.
    #[must_use]
    pub fn of_size(mut self, processes: Option<u32>, threads: Option<u32>) -> Self {
        self.processes = processes.unwrap_or(self.processes);
        self.threads = threads.unwrap_or_else(|| self.fewest_cores());
        self
    }

    /// Without the one connection by which each agent sees, before the first step, whether the target is there.
    #[must_use]
    pub fn without_contact(mut self) -> Self {
        self.contact = false;
        self
    }

    /// A step in which an agent was lost is run again by the others.
    #[must_use]
    pub fn repeating(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// With another time after which a silent agent is lost.
    #[cfg(test)]
    pub(super) fn losing_after(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.met.len()
    }

    /// Threads of each process.
    fn fewest_cores(&self) -> u32 {
        let cores = self.met.iter().map(|met| met.machine.cores).min().unwrap_or(1);
        (cores / self.processes.max(1)).max(1)
    }

    /// Runs a step.
    pub(in crate::cluster) fn run(
        &mut self,
        job: &Job,
        plan: &StepPlan,
        stop: &Stop,
        progress: &mut Option<OnProgress>,
    ) -> Result<Measurement, ClusterError> {
        let mut lost: Vec<AgentShare> = Vec::new();
        loop {
            self.steps += 1;
            let links = self.met.iter().map(|met| &met.link);
            let mut step = StepOfAgents::begin(links, &self.order(job, plan), self.silence)?;
            step.follow(stop, self.repeats, progress);
            let gone: Vec<AgentShare> = step.shares().filter(|share| share.lost.is_some()).collect();
            self.forget(&gone);
            lost.extend(gone.iter().cloned());
            if !step.has_begun()
                && !self.has_run
                && let Some(first) = gone.first()
            {
                return Err(loss(first));
            }
            if let (true, Some(last)) = (self.met.is_empty(), lost.last()) {
                return Err(loss(last));
            }
            let stands = gone.is_empty() || (step.has_begun() && !self.repeats);
            if stands || stop.is_stopped() {
                self.has_run = true;
                return step.measurement(plan, lost);
            }
        }
    }

    /// The whole step, of which each agent is ordered a part.
    fn order(&self, job: &Job, plan: &StepPlan) -> AgentOrder {
        AgentOrder {
            version: self.version.clone(),
            run: self.run.clone(),
            step: self.steps,
            // Addresses to connect from are each machine's own.
            job: Job { threads: self.threads, sources: Vec::new(), ..job.clone() },
            plan: plan.clone(),
            processes: self.processes,
            contact: self.contact && !self.has_run,
        }
    }

    /// Leaves out those that were lost.
    fn forget(&mut self, gone: &[AgentShare]) {
        let gone: BTreeSet<&str> = gone.iter().map(|share| share.agent.as_str()).collect();
        self.met.retain(|met| !gone.contains(met.link.address()));
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        let stop = AgentStop { run: self.run.clone(), step: self.steps, is_over: true };
        let Ok(text) = serde_json::to_string(&stop) else { return };
        for met in &self.met {
            // One that is gone is free.
            let _told = met.link.ask(AgentCall::Stop, &text).is_ok();
        }
    }
}

/// The machine of an agent that is this version.
fn machine(link: &dyn AgentLink, version: &str) -> Result<Machine, AgentError> {
    let text = link.ask(AgentCall::Profile, "{}")?;
    let unreadable = |error: serde_json::Error| AgentError(format!("its profile cannot be read: {error}"));
    let stated: StatedVersion = serde_json::from_str(&text).map_err(unreadable)?;
    if stated.version != version {
        let theirs = stated.version.escape_debug().take(40).collect::<String>();
        return Err(AgentError(format!(
            "it is tidegate {theirs}, and this is {version}: run the same version on both"
        )));
    }
    let profile: AgentProfile = serde_json::from_str(&text).map_err(unreadable)?;
    Ok(profile.machine)
}

fn failed(link: &dyn AgentLink, error: &AgentError) -> ClusterError {
    ClusterError::Agent { agent: link.address().to_owned(), reason: error.to_string() }
}

fn loss(share: &AgentShare) -> ClusterError {
    ClusterError::Agent { agent: share.agent.clone(), reason: share.lost.clone().unwrap_or_default() }
}
