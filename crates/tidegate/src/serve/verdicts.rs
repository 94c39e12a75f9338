//! Verdicts of health checks, passed between the services that check and the nodes that share the configuration.
//!
//! A message is `health up SUBJECT` or `health down SUBJECT`. What a later version says beside that is passed over.

use tidegate_control::Control;
use tidegate_net::runtime::Cores;
use tidegate_upstream::verdicts::{Verdict, Verdicts};
use tokio::sync::broadcast::error::RecvError;

/// The verdicts of a process, shared with those who share its configuration.
pub(super) fn shared(control: &Control, cores: &Cores) -> Verdicts {
    let verdicts = Verdicts::default();
    let Some(mut heard) = control.heard() else { return verdicts };
    let told = control.clone();
    verdicts.tell_by(move |verdict| told.tell(written(verdict)));
    let hearing = verdicts.clone();
    cores.spawn_on(0, async move {
        loop {
            match heard.recv().await {
                Ok(message) => {
                    if let Some(verdict) = read(&message) {
                        hearing.hear(verdict);
                    }
                }
                // What was missed is found by the checks when they are due.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    verdicts
}

fn written(verdict: Verdict<'_>) -> String {
    let state = if verdict.is_up { "up" } else { "down" };
    format!("health {state} {}", verdict.subject)
}

fn read(message: &str) -> Option<Verdict<'_>> {
    let (state, subject) = message.strip_prefix("health ")?.split_once(' ')?;
    match state {
        "up" => Some(Verdict { subject, is_up: true }),
        "down" => Some(Verdict { subject, is_up: false }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_as_it_was_written_and_nothing_else_is() {
        for is_up in [true, false] {
            let verdict = Verdict { subject: "edge web a b 127.0.0.1:80", is_up };
            assert_eq!(read(&written(verdict)), Some(verdict));
        }
        for message in ["", "health", "health up", "health sideways edge a", "weather up edge a"] {
            assert_eq!(read(message), None, "{message}");
        }
    }
}
