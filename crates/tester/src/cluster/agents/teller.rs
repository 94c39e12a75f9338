//! What happens at one agent within a step, as events for the step's one loop.

use std::{sync::mpsc, thread};

use super::comparison::{ClockComparison, compare};
use super::{AgentLine, AgentLink};
use crate::{epoch::Epoch, load::Progress};
use tidegate_judge::measurement::Measurement;

/// What happens at an agent.
pub(super) enum AgentEvent {
    Ready,
    Compared(ClockComparison),
    /// It is there.
    Heard,
    Started {
        late_us: u64,
    },
    Progress(Progress),
    Done(Box<Measurement>),
    Lost(String),
}

/// An event, and the part of the step in which it happened.
pub(super) struct PartEvent {
    pub(super) part: usize,
    pub(super) event: AgentEvent,
}

/// Says what happens in one part of a step.
pub(super) struct Teller {
    pub(super) part: usize,
    pub(super) events: mpsc::SyncSender<PartEvent>,
}

impl Teller {
    /// False when the step is over.
    pub(super) fn tell(&self, event: AgentEvent) -> bool {
        self.events.send(PartEvent { part: self.part, event }).is_ok()
    }

    /// Orders a part, and hands on what becomes of it.
    pub(super) fn follow(&self, link: &dyn AgentLink, order: &str) {
        let mut has_ended = false;
        let broken = link.step(order, &mut |line: &str| {
            let event = match serde_json::from_str(line) {
                Ok(AgentLine::Ready) => AgentEvent::Ready,
                Ok(AgentLine::Waiting) => AgentEvent::Heard,
                Ok(AgentLine::Started { late_us }) => AgentEvent::Started { late_us },
                Ok(AgentLine::Progress(progress)) => AgentEvent::Progress(progress),
                Ok(AgentLine::Done(measured)) => AgentEvent::Done(Box::new((*measured).into())),
                // A line of somebody else's, for a terminal.
                Ok(AgentLine::Failed(reason)) => AgentEvent::Lost(reason.replace(char::is_control, " ")),
                Err(error) => AgentEvent::Lost(format!("its answer cannot be read: {error}")),
            };
            has_ended = matches!(event, AgentEvent::Done(_) | AgentEvent::Lost(_));
            self.tell(event) && !has_ended
        });
        let reason = match broken {
            Err(error) => error.to_string(),
            Ok(()) => "its answer ended without a result".to_owned(),
        };
        if !has_ended {
            self.tell(AgentEvent::Lost(reason));
        }
    }

    /// Compares the agent's clock with ours.
    pub(super) fn compare(&self, link: &dyn AgentLink, epoch: Epoch) {
        self.tell(match compare(link, epoch) {
            Ok(clock) => AgentEvent::Compared(clock),
            Err(error) => AgentEvent::Lost(error.to_string()),
        });
    }
}

/// Works in a thread of its own.
pub(super) fn aside(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name("agents".to_owned()).spawn(work).map(drop)
}
