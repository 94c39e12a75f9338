//! Requests of an HTTP/2 connection are answered by the connection's own task, in turns.
//!
//! hyper hands over a future per request and expects it to become a task. Most of them have their
//! answer at their first poll: the body came with its head and the store is this process's memory. So
//! they are collected while hyper reads, polled once when it has read all there is, and only those that
//! must wait become tasks. The replies of a turn then leave in one write.
//!
//! Invariants: a future is polled here once, with a waker that wakes nobody; what is not finished then is
//! polled anew by its task, which leaves the right one. A turn has at most [`MOST`] answers; a future
//! beyond them becomes a task at once.
//!
//! Answers that become tasks are watched until their replies have left ([`super::outbox`]). What sends the bytes of a
//! tunnel is a task from the beginning, and watched by [`super::tunnel`].
//!
//! What follows: a panic in a handler ends its connection, as it does on HTTP/1.1.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use hyper::rt::Executor;
use parking_lot::Mutex;

use super::outbox::{Delivered, Outbox};
use super::tunnel::Sending;

/// Most requests at once on a connection.
pub(super) const MAX_STREAMS: u32 = 256;
/// Most answers of a turn: as many as a connection may have requests.
const MOST: usize = MAX_STREAMS as usize;

type TurnAnswer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The answers that are to be given when hyper has read what there is.
pub(super) struct Turn {
    outbox: Arc<Outbox>,
    answers: Arc<Mutex<Vec<TurnAnswer>>>,
    /// The answers of this turn; empty between turns.
    taken: Vec<TurnAnswer>,
}

impl Turn {
    /// For a connection with this outbox.
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, answers: Arc::default(), taken: Vec::new() }
    }

    /// For hyper: what it executes waits here. The answers hold it, so it must not hold them.
    pub(super) fn executor(&self) -> Collect {
        Collect { answers: Arc::downgrade(&self.answers), outbox: Arc::downgrade(&self.outbox) }
    }

    /// Gives the answers that can be given at once, and has tasks wait for the others.
    pub(super) fn answer(&mut self) {
        std::mem::swap(&mut *self.answers.lock(), &mut self.taken);
        let mut nobody = Context::from_waker(Waker::noop());
        for mut answer in self.taken.drain(..) {
            let polled = answer.as_mut().poll(&mut nobody);
            let delivery = self.outbox.made();
            if polled.is_pending() {
                drop(tokio::spawn(Delivered::new(answer, delivery, Arc::clone(&self.outbox))));
            }
        }
    }
}

/// Collects what hyper executes.
#[derive(Clone)]
pub(super) struct Collect {
    answers: Weak<Mutex<Vec<TurnAnswer>>>,
    outbox: Weak<Outbox>,
}

impl<F> Executor<F> for Collect
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let answer: TurnAnswer = Box::pin(future);
        // Without an outbox the connection is over, and so is what it asked.
        let Some(outbox) = self.outbox.upgrade() else { return };
        if let Some(is_over) = outbox.executed_tunnel() {
            drop(tokio::spawn(Sending::new(answer, is_over, outbox)));
            return;
        }
        if let Some(answers) = self.answers.upgrade() {
            let mut answers = answers.lock();
            if answers.len() < MOST {
                return answers.push(answer);
            }
        }
        drop(tokio::spawn(Delivered::new(answer, None, outbox)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpConfig;
    use crate::stats::Stats;
    use tokio::sync::{mpsc, oneshot};

    fn turn() -> Turn {
        let outbox = Outbox::new(HttpConfig::default().write, Arc::new(Stats::new(1, &["other"])), 0);
        Turn::new(Arc::new(outbox))
    }

    #[tokio::test]
    async fn what_is_ready_is_answered_in_its_turn_and_the_rest_becomes_tasks() {
        let mut turn = turn();
        let (news, mut told) = mpsc::channel(2);
        let (finish, finished) = oneshot::channel::<()>();
        let ready = news.clone();
        turn.executor().execute(async move { ready.send("ready").await.unwrap() });
        turn.executor().execute(async move {
            finished.await.unwrap();
            news.send("waited").await.unwrap();
        });
        assert!(told.try_recv().is_err(), "nothing is answered before its turn");
        turn.answer();
        assert_eq!(told.try_recv(), Ok("ready"));
        assert!(told.try_recv().is_err(), "the other one waits");
        finish.send(()).unwrap();
        assert_eq!(told.recv().await, Some("waited"), "and its task is woken");
    }

    #[tokio::test]
    async fn a_turn_takes_so_many_answers_and_no_more() {
        let turn = turn();
        let (news, mut told) = mpsc::channel(1);
        for number in 0..=MOST {
            let news = news.clone();
            turn.executor().execute(async move { news.send(number).await.unwrap() });
        }
        drop(news);
        assert_eq!(told.recv().await, Some(MOST), "the one too many is a task");
        drop(turn);
        assert_eq!(told.recv().await, None, "what was collected went with its connection");
    }
}
