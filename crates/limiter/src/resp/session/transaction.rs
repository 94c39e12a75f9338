//! MULTI, EXEC and DISCARD, as Redis answers them.
//!
//! ```text
//!   MULTI ──> +OK    command ──> +QUEUED, parsed and put off    EXEC ──> *n, and all replies at once
//! ```
//!
//! Clients' pipelines stand between MULTI and EXEC by default (redis-py does so), which is why they are here.
//! What Redis promises beyond order is not: the commands of other clients may come between. A command that
//! is no command, has the wrong number of arguments or is one too many spoils the transaction, and EXEC then
//! runs none of it.

use tidegate_net::stats::Route;
use tidegate_wire::resp::Command;

use super::super::batch::PipelineBatch;
use super::super::commands::{self, CommandKind, Spec};
use super::super::outcome::CommandOutcome;
use super::{RespSession, done, refuse};

/// The commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    queued: PipelineBatch,
    /// Whether one was refused, so that none is run.
    spoilt: bool,
}

impl Transaction {
    pub(super) fn bytes(&self) -> usize {
        self.queued.bytes()
    }
}

impl RespSession {
    /// Answers a command between MULTI and EXEC, or EXEC itself.
    pub(super) fn answer_within(
        &mut self,
        mut transaction: Transaction,
        found: Option<(&'static Spec, Route)>,
        command: Command<'_>,
        batch: &mut PipelineBatch,
    ) -> CommandOutcome {
        let taken = found.filter(|(spec, _)| spec.takes(command.arguments()));
        let kind = taken.map(|(spec, _)| spec.kind);
        let route = found.map_or(Route::OTHER, |(_, route)| route);
        if self.is_closed() || kind == Some(CommandKind::Quit) {
            return self.answer_now(found, command, batch);
        }
        match kind {
            Some(CommandKind::Exec) if transaction.spoilt => batch.answer(self.protocol, |out| {
                (route, refuse(out, "EXECABORT Transaction discarded because of previous errors."))
            }),
            Some(CommandKind::Exec) => {
                batch.answer(self.protocol, |out| {
                    out.array(transaction.queued.len());
                    (route, CommandOutcome::Done)
                });
                batch.append(transaction.queued);
                CommandOutcome::Done
            }
            Some(CommandKind::Discard) => batch.answer(self.protocol, |out| (route, done(out))),
            _ => {
                let refusal = match found {
                    Some((Spec { kind: CommandKind::Multi, .. }, _)) => {
                        Some("ERR MULTI calls can not be nested")
                    }
                    Some((Spec { kind: CommandKind::Hello | CommandKind::Auth, .. }, _)) => {
                        Some("ERR Command not allowed inside a transaction")
                    }
                    _ if !transaction.queued.takes_more() => {
                        Some("ERR too many commands between MULTI and EXEC")
                    }
                    _ => None,
                };
                let outcome = match refusal {
                    Some(refusal) => batch.answer(self.protocol, |out| (route, refuse(out, refusal))),
                    None => self.queue(&mut transaction.queued, found, command, batch),
                };
                // As in Redis, MULTI in MULTI is refused and spoils nothing.
                transaction.spoilt |= outcome != CommandOutcome::Done && kind != Some(CommandKind::Multi);
                self.transaction = Some(transaction);
                outcome
            }
        }
    }

    /// Puts a command off until EXEC. What Redis would refuse at once is refused at once: an unknown command, and a
    /// wrong number of arguments.
    fn queue(
        &mut self,
        queued: &mut PipelineBatch,
        found: Option<(&'static Spec, Route)>,
        command: Command<'_>,
        batch: &mut PipelineBatch,
    ) -> CommandOutcome {
        match found {
            Some((spec, _)) if spec.takes(command.arguments()) => {
                self.answer_now(found, command, queued);
                batch.answer(self.protocol, |out| {
                    out.simple("QUEUED");
                    // The command itself is counted when it is run.
                    (commands::route_of(CommandKind::Multi), CommandOutcome::Done)
                })
            }
            _ => self.answer_now(found, command, batch),
        }
    }
}
