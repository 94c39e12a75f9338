//! One step of several agents: their parts are ordered, begin together, and are added up.
//!
//! A thread for each agent reads the lines of its answer; one loop takes what they find, and decides. What has to be asked
//! meanwhile (a clock, a start, a stop) is asked beside the loop, so that one slow agent holds up nobody.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use super::comparison::ClockComparison;
use super::teller::{AgentEvent, PartEvent, Teller, aside};
use super::{AgentCall, AgentLink, AgentOrder, AgentStart, AgentStop};
use crate::{
    cluster::{ClusterError, GRACE, Job, LOOK, budget, most_parts, part, together, transfer},
    epoch::{Epoch, nanos},
    load::{OnProgress, Progress, Stop},
};
use tidegate_algorithms::time::SECOND;
use tidegate_judge::measurement::{AgentShare, Loop, Measurement, StepPlan};

/// From the last comparison of clocks to the common start, beside four times the worst comparison of clocks.
const LEAD: Duration = Duration::from_millis(250);
/// An agent that begins so long after the common start is lost: what it measures is of another time than that of the others.
const MAX_LATE: Duration = Duration::from_secs(1);
/// Longest time in which connections are opened.
const OPENING: Duration = Duration::from_secs(600);
/// Bytes per second at which an order arrives at least: one with a scenario's data is large, and an agent says nothing before.
const SLOWEST_ORDER: u64 = 128 << 10;
/// An agent that says nothing for so long within a step is lost. It is longer than an agent's kernel waits for the acknowledgement of
/// a line (30 s, the TCP user timeout of the net crate's listeners): when the network between is broken, the agent has then noticed
/// it before, and makes no load any more.
pub(super) const SILENCE: Duration = Duration::from_secs(35);

/// One agent's part of a step, as far as it has come.
struct AgentPart {
    link: Arc<dyn AgentLink>,
    plan: StepPlan,
    is_ready: bool,
    clock: Option<ClockComparison>,
    late_us: u64,
    /// When it said something last, or could say something first.
    heard: u64,
    progress: Option<Progress>,
    outcome: Option<Result<Box<Measurement>, String>>,
}

impl AgentPart {
    /// An agent that cannot say anything before `arrival`, because its order is still on the way.
    fn new(link: Arc<dyn AgentLink>, plan: StepPlan, arrival: u64) -> Self {
        Self {
            link,
            plan,
            is_ready: false,
            clock: None,
            late_us: 0,
            heard: arrival,
            progress: None,
            outcome: None,
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.outcome, Some(Err(_)))
    }

    fn measured(&self) -> Option<&Measurement> {
        self.outcome.as_ref().and_then(|outcome| outcome.as_deref().ok())
    }

    fn share(&self) -> AgentShare {
        let measured = self.measured();
        AgentShare {
            agent: self.link.address().to_owned(),
            connections: self.plan.connections,
            clock_ahead_us: self.clock.map_or(0, |clock| clock.ahead_us),
            clock_error_us: self.clock.map_or(0, |clock| clock.error / 1_000),
            late_us: self.late_us,
            good: measured.map_or(0, |measured| measured.good),
            p99_us: measured.map_or(0, |measured| measured.response.value_at_quantile(0.99)),
            lost: self.outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned()),
        }
    }

    fn take(&mut self, event: AgentEvent, now: u64) {
        self.heard = now;
        match event {
            AgentEvent::Ready => self.is_ready = true,
            AgentEvent::Compared(clock) => self.clock = Some(clock),
            AgentEvent::Heard => {}
            AgentEvent::Started { late_us } => {
                self.late_us = late_us;
                if Duration::from_micros(late_us) > MAX_LATE {
                    let (late, most) = (late_us / 1_000, MAX_LATE.as_millis());
                    self.end(Err(format!("it began {late} ms late, and at most {most} ms are allowed")));
                }
            }
            AgentEvent::Progress(progress) => self.progress = Some(progress),
            AgentEvent::Done(measured) => self.end(Ok(measured)),
            AgentEvent::Lost(reason) => self.end(Err(reason)),
        }
    }

    /// The first end holds.
    fn end(&mut self, outcome: Result<Box<Measurement>, String>) {
        self.outcome.get_or_insert(outcome);
    }
}

/// A step under way.
pub(super) struct StepOfAgents {
    parts: Vec<AgentPart>,
    epoch: Epoch,
    events: mpsc::SyncSender<PartEvent>,
    inbox: mpsc::Receiver<PartEvent>,
    run: String,
    /// Its number within the run.
    step: u64,
    budget: Duration,
    silence: Duration,
    /// When those that have not ended are lost.
    deadline: u64,
    /// All are ready, and their clocks are asked for.
    is_comparing: bool,
    /// When the common start was named.
    started: Option<u64>,
    /// All were told to stop.
    is_ending: bool,
}

impl StepOfAgents {
    /// Orders each agent's part of the whole that is ordered. An agent that says nothing for `silence` is lost.
    pub(super) fn begin<'a>(
        links: impl ExactSizeIterator<Item = &'a Arc<dyn AgentLink>>,
        whole: &AgentOrder,
        silence: Duration,
    ) -> Result<Self, ClusterError> {
        let (_, options) = whole.job.resolve()?;
        let epoch = Epoch::start();
        let count = most_parts(&whole.plan, links.len() as u32);
        let (events, inbox) = mpsc::sync_channel(count as usize * 8);
        let mut parts = Vec::new();
        for (index, link) in (0..count).zip(links) {
            let order = part_of(whole, index, count);
            let text = serde_json::to_string(&order).map_err(std::io::Error::from)?;
            let arrival = text.len() as u64 * SECOND / SLOWEST_ORDER;
            let told = Teller { part: parts.len(), events: events.clone() };
            let agent = Arc::clone(link);
            aside(move || told.follow(&*agent, &text))?;
            parts.push(AgentPart::new(Arc::clone(link), order.plan, arrival));
        }
        Ok(Self {
            parts,
            epoch,
            events,
            inbox,
            run: whole.run.clone(),
            step: whole.step,
            budget: budget(&whole.plan, &options),
            silence,
            deadline: nanos(OPENING),
            is_comparing: false,
            started: None,
            is_ending: false,
        })
    }

    /// Follows the step until every part has ended, in one way or another. When one is lost, the others are told to stop: before the
    /// start always, and later if the step is to be `whole_or_nothing`.
    pub(super) fn follow(&mut self, stop: &Stop, whole_or_nothing: bool, progress: &mut Option<OnProgress>) {
        while self.parts.iter().any(|part| part.outcome.is_none()) {
            let event = self.inbox.recv_timeout(LOOK);
            let now = self.epoch.now();
            if let Ok(PartEvent { part, event }) = event {
                // The order to stop may have come before that to begin.
                let is_behind = self.is_ending && matches!(event, AgentEvent::Ready);
                let has_begun = matches!(event, AgentEvent::Started { .. });
                self.parts[part].take(event, now);
                if is_behind || (has_begun && self.parts[part].is_lost()) {
                    self.tell_to_stop(part);
                }
            }
            self.lose_the_silent(now);
            if self.started.is_none() && !self.is_ending {
                self.start_if_all_are_ready(now);
            }
            let may_be_spoilt = whole_or_nothing || self.started.is_none();
            let is_spoilt = may_be_spoilt && self.parts.iter().any(AgentPart::is_lost);
            if (is_spoilt || stop.is_stopped()) && !self.is_ending {
                self.end();
            }
            if let (Some(view), Some(callback)) = (self.view(), &mut *progress) {
                callback(&view);
            }
        }
    }

    /// Ends the parts of agents that say nothing, or do not come to an end. They are told to stop, should they hear it.
    fn lose_the_silent(&mut self, now: u64) {
        let (deadline, silence) = (self.deadline, self.silence);
        let mut lost = Vec::new();
        for (index, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.outcome.is_none()) {
            if now > deadline {
                part.end(Err("it came to no result in time".to_owned()));
            } else if now.saturating_sub(part.heard) > nanos(silence) {
                part.end(Err(format!("it said nothing for {} s", silence.as_secs())));
            } else {
                continue;
            }
            lost.push(index);
        }
        lost.into_iter().for_each(|index| self.tell_to_stop(index));
    }

    /// Compares the clocks when all are ready: clocks drift apart while the last one opens its connections. Then names one moment for
    /// all of them, each by its own clock.
    fn start_if_all_are_ready(&mut self, now: u64) {
        if !self.parts.iter().all(|part| part.is_ready && part.outcome.is_none()) {
            return;
        }
        if !self.is_comparing {
            self.is_comparing = true;
            return self.compare_clocks();
        }
        let clocks: Option<Vec<ClockComparison>> = self.parts.iter().map(|part| part.clock).collect();
        let Some(clocks) = clocks else { return };
        let worst = clocks.iter().map(|clock| clock.error).max().unwrap_or(0);
        let at = now + nanos(LEAD) + worst.saturating_mul(4);
        for (index, clock) in clocks.iter().enumerate() {
            let start = AgentStart { run: self.run.clone(), step: self.step, at_ns: clock.theirs_at(at) };
            self.tell(index, AgentCall::Start, serde_json::to_string(&start));
        }
        self.started = Some(at);
        self.deadline = at.saturating_add(nanos(self.budget));
    }

    fn compare_clocks(&mut self) {
        let epoch = self.epoch;
        for (index, part) in self.parts.iter_mut().enumerate() {
            let (link, told) = (Arc::clone(&part.link), Teller { part: index, events: self.events.clone() });
            if let Err(error) = aside(move || told.compare(&*link, epoch)) {
                part.end(Err(error.to_string()));
            }
        }
    }

    /// Tells those that have not ended to stop.
    fn end(&mut self) {
        self.is_ending = true;
        let open: Vec<usize> =
            (0..self.parts.len()).filter(|index| self.parts[*index].outcome.is_none()).collect();
        open.into_iter().for_each(|index| self.tell_to_stop(index));
        self.deadline = self.deadline.min(self.epoch.now().saturating_add(nanos(GRACE)));
    }

    fn tell_to_stop(&mut self, index: usize) {
        let stop = AgentStop { run: self.run.clone(), step: self.step, is_over: false };
        self.tell(index, AgentCall::Stop, serde_json::to_string(&stop));
    }

    /// Asks beside the loop; an agent that cannot be told is lost.
    fn tell(&mut self, index: usize, call: AgentCall, text: serde_json::Result<String>) {
        let told = Teller { part: index, events: self.events.clone() };
        let link = Arc::clone(&self.parts[index].link);
        let asked = text.map_err(std::io::Error::from).and_then(|text| {
            aside(move || {
                if let Err(error) = link.ask(call, &text) {
                    told.tell(AgentEvent::Lost(error.to_string()));
                }
            })
        });
        if let Err(error) = asked {
            self.parts[index].end(Err(error.to_string()));
        }
    }

    /// The sum of the views of all parts that have not ended, once each has one; they are then used up.
    fn view(&mut self) -> Option<Progress> {
        let mut open: Vec<&mut AgentPart> =
            self.parts.iter_mut().filter(|part| part.outcome.is_none()).collect();
        if open.iter().any(|part| part.progress.is_none()) {
            return None;
        }
        together(open.iter_mut().filter_map(|part| part.progress.take()))
    }

    /// Whether a common start was named.
    pub(super) fn has_begun(&self) -> bool {
        self.started.is_some()
    }

    /// What each agent had of it.
    pub(super) fn shares(&self) -> impl Iterator<Item = AgentShare> + '_ {
        self.parts.iter().map(AgentPart::share)
    }

    /// The sum of those who stayed. Its plan is what they were to do.
    pub(super) fn measurement(
        self,
        plan: &StepPlan,
        lost: Vec<AgentShare>,
    ) -> Result<Measurement, ClusterError> {
        let mut agents: Vec<AgentShare> = self.shares().filter(|share| share.lost.is_none()).collect();
        let kept: Vec<&AgentPart> = self.parts.iter().filter(|part| part.measured().is_some()).collect();
        let plan = if kept.len() == self.parts.len() {
            plan.clone()
        } else {
            plan_of(&kept, plan, self.parts.len())
        };
        let mut measured = kept.iter().filter_map(|part| part.measured());
        let Some(first) = measured.next() else {
            return Err(ClusterError::Worker("no agent had a result".to_owned()));
        };
        let mut sum = first.clone();
        measured.for_each(|part| transfer::add(&mut sum, part));
        agents.extend(lost);
        sum.plan = plan;
        // An agent's own account leaves out the time until it was asked.
        sum.opening_seconds = self.started.unwrap_or(0) as f64 / 1e9;
        sum.agents = agents;
        Ok(sum)
    }
}

/// What number `index` of `agents` is ordered. All have as many processes and threads as there is work for in the smallest part: each
/// thread has a connection, and a request where they are counted. Otherwise an agent would leave threads out, and its places in the
/// one schedule would be those of others.
pub(super) fn part_of(whole: &AgentOrder, index: u32, agents: u32) -> AgentOrder {
    let least = most_parts(&part(&whole.plan, agents.saturating_sub(1), agents), u32::MAX).max(1);
    let processes = whole.processes.clamp(1, least);
    let threads = whole.job.threads.min(least / processes).max(1);
    let job = Job { share: (index, agents), threads, ..whole.job.clone() };
    AgentOrder { job, plan: part(&whole.plan, index, agents), processes, ..whole.clone() }
}

/// The plan of the parts that were kept, of so many: the connections, requests and rate that they were to have.
fn plan_of(kept: &[&AgentPart], plan: &StepPlan, parts: usize) -> StepPlan {
    let discipline = match plan.discipline {
        Loop::Open { rate, poisson } => {
            Loop::Open { rate: rate * kept.len() as f64 / parts.max(1) as f64, poisson }
        }
        closed @ Loop::Closed { .. } => closed,
    };
    StepPlan {
        connections: kept.iter().map(|part| part.plan.connections).sum(),
        max_requests: kept.iter().map(|part| part.plan.max_requests).sum(),
        discipline,
        ..plan.clone()
    }
}
