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
    /// What the whole run asks for, if their machines were asked what they allow.
    need: Option<Need>,
    /// Processes of each, as their machines need them.
    needed: u32,
    /// Processes of each, and threads of each process, where they are stated.
    stated: (Option<u32>, Option<u32>),
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
        Ok(Self::of(met, version))
    }

    fn of(met: Vec<MetAgent>, version: &str) -> Self {
        Self {
            met,
            version: version.to_owned(),
            run: format!("{}-{}", std::process::id(), wall().0),
            need: None,
            needed: 1,
            stated: (None, None),
            contact: true,
            repeats: false,
            has_run: false,
            steps: 0,
            silence: SILENCE,
        }
    }

    /// What the machine of each allows of its share, by the agents' addresses. All have as many processes as the one that needs most,
    /// and as many threads as the one with the fewest cores, so that shares are equal. It is decided again when one is lost, because
    /// the shares of the others grow.
    pub fn decide(&mut self, need: &Need) -> Vec<(String, Decision)> {
        self.need = Some(need.clone());
        let parts = self.met.len() as u32;
        let need = Need { connections: need.connections.div_ceil(parts.max(1)), ..need.clone() };
        let found: Vec<(String, Decision)> =
            self.met.iter().map(|met| (met.link.address().to_owned(), decide(&met.machine, &need))).collect();
        self.needed = found.iter().map(|(_, decision)| decision.processes).max().unwrap_or(1);
        found
    }

    /// With so many processes and threads of each instead, where they are stated.
    #[must_use]
    pub fn of_size(mut self, processes: Option<u32>, threads: Option<u32>) -> Self {
        self.stated = (processes, threads);
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

    /// Processes of each, and threads of each process.
    fn size(&self) -> (u32, u32) {
        let (processes, threads) = self.stated;
        let processes = processes.unwrap_or(self.needed).max(1);
        let cores = self.met.iter().map(|met| met.machine.cores).min().unwrap_or(1);
        (processes, threads.unwrap_or(cores / processes).max(1))
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
                // A step of few connections has fewer parts than there are agents.
                return match gone.last() {
                    Some(last) if gone.len() == step.shares().count() => Err(loss(last)),
                    _ => step.measurement(plan, lost),
                };
            }
        }
    }

    /// The whole step, of which each agent is ordered a part.
    fn order(&self, job: &Job, plan: &StepPlan) -> AgentOrder {
        let (processes, threads) = self.size();
        AgentOrder {
            version: self.version.clone(),
            run: self.run.clone(),
            step: self.steps,
            // Addresses to connect from are each machine's own.
            job: Job { threads, sources: Vec::new(), ..job.clone() },
            plan: plan.clone(),
            processes,
            contact: self.contact && !self.has_run,
        }
    }

    /// Leaves out those that were lost. Each of the others has more connections then, and may need more processes.
    fn forget(&mut self, gone: &[AgentShare]) {
        let gone: BTreeSet<&str> = gone.iter().map(|share| share.agent.as_str()).collect();
        self.met.retain(|met| !gone.contains(met.link.address()));
        if let (false, Some(need)) = (gone.is_empty(), self.need.clone()) {
            self.decide(&need);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct NamedLink(&'static str);

    impl AgentLink for NamedLink {
        fn address(&self) -> &str {
            self.0
        }

        fn ask(&self, _call: AgentCall, _body: &str) -> Result<String, AgentError> {
            Ok("{}".to_owned())
        }

        fn step(&self, _body: &str, _line: &mut dyn FnMut(&str) -> bool) -> Result<(), AgentError> {
            Ok(())
        }
    }

    #[test]
    fn those_that_are_left_have_processes_for_their_larger_shares() {
        let machine = Machine { descriptors_hard: Some(1_200), cores: 4, ..Machine::read() };
        let met = ["a", "b"].map(|name| MetAgent { link: Arc::new(NamedLink(name)), machine });
        let mut agents = Agents::of(met.into(), "1.2.3");
        let need = Need {
            connections: 2_000,
            target: "127.0.0.1:1".parse().unwrap(),
            sources: Vec::new(),
            per_request: false,
        };
        assert_eq!(agents.decide(&need).len(), 2);
        assert_eq!(agents.size(), (1, 4));
        let lost = Some("the cable was cut".to_owned());
        agents.forget(&[AgentShare { agent: "a".to_owned(), lost, ..AgentShare::default() }]);
        assert_eq!(agents.size(), (2, 2));
        assert_eq!(agents.of_size(Some(1), None).size(), (1, 4));
    }
}
