//! `GET /v1/events`: what changes, as server-sent events (the HTML standard, 9.2), for a console.
//!
//! ```text
//!   control::Configuration ── watch ──> a task for each reader ── queue of 8 ── body ── socket
//!   Breakers ── every 250 ms ── watch ──>      `─ full for 5 s: the reader is dropped, and counted
//! ```
//!
//! Both sources keep what is newest, not what has been: changes that come faster than a reader takes them become one
//! event. So a reader that was away loses nothing by connecting again: the first events say what is so. A reader that
//! states the `id` of its last event (`Last-Event-ID`, or `?after=` where a page cannot set header fields) is told
//! what has changed since. An id holds while this process has this file; any other id counts as absent.
//!
//! | event | data |
//! |---|---|
//! | `configuration` | `revision` in force; what `changed`: `{"kind":"policy","name":"api"}`; `more` that are not listed; `all`: all of it may be new, as at first and with another file |
//! | `breaker` | `of` (`upstream`, `route` or `store`), `name`, `state`: `closed`, `open` or `half_open`, or `gone` |
//!
//! A comment is sent after 15 s of silence, so that a client that has left is noticed. A stream ends when the process
//! drains, and within these 15 s when its token is taken away or its session is over.
//!
//! Bounds: [`MAX_READERS`], [`MAX_QUEUED`], [`MAX_LISTED`], [`PATIENCE`].

mod in_force;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Uri};
use http_body::Frame;
use serde::Serialize;
use tidegate_access::guard::Guard;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_access::tokens::Scope;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::EndsWithListener;
use tidegate_wire::problem::Problem;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Shared;
use crate::{Families, Family};
use in_force::InForce;

/// Most readers at once; more are answered 503.
pub const MAX_READERS: usize = 64;

/// Most events that wait for a reader.
pub const MAX_QUEUED: usize = 8;

/// Most changed documents that one event names.
pub const MAX_LISTED: usize = 100;

/// Longest that a reader may leave a full queue as it is. The listener cuts a reader that is too slow for it, and
/// counts it as any such client.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How often breakers are looked at, while there are readers.
const SAMPLE: Duration = Duration::from_millis(250);

/// Longest silence.
const SILENCE: Duration = Duration::from_secs(15);

/// A breaker and what it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerState {
    /// `upstream`, `route` or `store`.
    pub of: &'static str,
    /// The upstream's or the route's name; of the store, what it is.
    pub name: Arc<str>,
    /// `closed`, `open` or `half_open`.
    pub state: &'static str,
}

/// The breakers of this process. Asked four times a second at most.
pub trait Breakers: Debug + Send + Sync {
    /// All of them.
    fn breakers(&self) -> Vec<BreakerState>;
}

/// What readers of events share; clones share it.
#[derive(Clone, Debug)]
pub struct Events {
    sources: Arc<EventSources>,
}

#[derive(Debug)]
struct EventSources {
    breakers: Arc<dyn Breakers>,
    newest: watch::Sender<Vec<BreakerState>>,
    /// So that no other process takes an event's id for one of its own.
    salt: RandomState,
    drain: Drain,
    room: Arc<Semaphore>,
    refused: AtomicU64,
    slow: AtomicU64,
    sent: AtomicU64,
}

impl Events {
    /// Events of these breakers and of the configuration, until `drain` begins.
    #[must_use]
    pub fn new(breakers: Arc<dyn Breakers>, drain: Drain) -> Self {
        let sources = EventSources {
            breakers,
            newest: watch::Sender::new(Vec::new()),
            salt: RandomState::new(),
            drain,
            room: Arc::new(Semaphore::new(MAX_READERS)),
            refused: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        };
        Self { sources: Arc::new(sources) }
    }

    /// Looks at the breakers for as long as it is polled.
    pub async fn follow(&self) {
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.sources.newest.receiver_count() > 0 {
                self.sources.look();
            }
        }
    }
}

impl EventSources {
    fn look(&self) {
        let now = self.breakers.breakers();
        self.newest.send_if_modified(|last| {
            let is_new = *last != now;
            *last = now;
            is_new
        });
    }
}

impl Family for Events {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let EventSources { room, refused, slow, sent, .. } = &*self.sources;
        let readers = MAX_READERS.saturating_sub(room.available_permits()) as u64;
        families.gauge("tidegate_event_readers", "Readers of /v1/events", readers)?;
        families.counter("tidegate_events_sent", "Events that readers were sent", sent.load(Relaxed))?;
        families.counters(
            "tidegate_event_readers_dropped",
            "Readers that were turned away or dropped",
            |series| {
                series(&[("reason", "too_many")], refused.load(Relaxed))?;
                series(&[("reason", "slow")], slow.load(Relaxed))
            },
        )
    }
}

/// Sends what changes, as it changes: the configuration in force, and the states of breakers.
#[utoipa::path(
    get, path = "/v1/events", tag = "configuration",
    params(
        ("last-event-id" = Option<String>, Header, description = "the id of the last event that the client had: the first event then says what has changed since"),
        ("after" = Option<String>, Query, description = "the same, for clients that cannot send header fields; the header field counts if both are there"),
    ),
    responses(
        (status = 200, description = "Events for as long as the client stays: first what is so, then what changes.", body = String, content_type = "text/event-stream",
            example = json!("event: configuration\nid: 7-51c0a4e2d9b8f613\ndata: {\"revision\":7,\"all\":true,\"changed\":[],\"more\":0}\n\n")),
        Problems,
    )
)]
pub(super) async fn events(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let sources = shared.events.sources.clone();
    let Ok(permit) = sources.room.clone().try_acquire_owned() else {
        sources.refused.fetch_add(1, Relaxed);
        let detail = format!("{MAX_READERS} readers have the events already; try again");
        return Err(Refusal(Problem::new(503, "Service Unavailable", detail)));
    };
    let (queue, events) = mpsc::channel(MAX_QUEUED);
    let caller = ReaderCredential::new(&shared.guard, &request);
    let after = last_event(&request);
    let reader = EventReader { shared: shared.clone(), sources, queue, caller, after, _permit: permit };
    tokio::spawn(reader.run());
    let mut reply = Response::new(Body::new(EventBody(events)));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply.extensions_mut().insert(EndsWithListener);
    Ok(reply)
}

/// The id of the last event that the client had.
fn last_event(request: &Request) -> Option<String> {
    if let Some(id) = request.headers().get("last-event-id") {
        return id.to_str().ok().map(str::to_owned);
    }
    let mut parameters = form_urlencoded::parse(request.uri().query()?.as_bytes());
    parameters.find(|(name, _)| name == "after").map(|(_, id)| id.into_owned())
}

/// The reader's credential, which is checked again before each event.
struct ReaderCredential {
    guard: Arc<Guard>,
    uri: Uri,
    headers: HeaderMap,
}

impl ReaderCredential {
    fn new(guard: &Arc<Guard>, request: &Request) -> Self {
        let (uri, headers) = (request.uri().clone(), request.headers().clone());
        Self { guard: guard.clone(), uri, headers }
    }

    /// Whether it still may read.
    fn is_admitted(&self) -> bool {
        self.guard.admit(Scope::Read, &self.uri, &self.headers).is_ok()
    }
}

/// The task of one reader.
struct EventReader {
    shared: Arc<Shared>,
    sources: Arc<EventSources>,
    queue: mpsc::Sender<Bytes>,
    caller: ReaderCredential,
    /// What it had before this stream, by an event's id.
    after: Option<String>,
    _permit: OwnedSemaphorePermit,
}

/// Why a reader's stream ends.
struct Over;

impl EventReader {
    async fn run(mut self) {
        // Every way out ends the stream: the queue's end goes with this task.
        let Err(Over) = self.follow().await;
    }

    async fn follow(&mut self) -> Result<Infallible, Over> {
        let mut configuration = self.shared.configuration.watch();
        let mut breakers = self.sources.newest.subscribe();
        self.sources.look();
        let salt = self.sources.salt.clone();
        let mut in_force = InForce::of(&configuration.borrow_and_update());
        let had = self.after.take().and_then(|id| in_force.revision_of(&id, &salt));
        self.send(in_force.event(had, &salt)).await?;
        let mut known = breakers.borrow_and_update().clone();
        self.send(differences(&[], &known)).await?;
        let drain = self.sources.drain.clone();
        loop {
            let event = tokio::select! {
                () = drain.reached(Stage::Draining) => return Err(Over),
                () = self.queue.closed() => return Err(Over),
                is_there = configuration.changed() => {
                    is_there.map_err(|_| Over)?;
                    let next = InForce::of(&configuration.borrow_and_update());
                    let event = next.event(next.revision_of(&in_force.id(&salt), &salt), &salt);
                    in_force = next;
                    event
                }
                is_there = breakers.changed() => {
                    is_there.map_err(|_| Over)?;
                    let next = breakers.borrow_and_update().clone();
                    let event = differences(&known, &next);
                    known = next;
                    event
                }
                () = tokio::time::sleep(SILENCE) => ":\n\n".to_owned(),
            };
            self.send(event).await?;
        }
    }

    async fn send(&mut self, event: String) -> Result<(), Over> {
        if event.is_empty() {
            return Ok(());
        }
        if !self.caller.is_admitted() {
            return Err(Over);
        }
        let sent = timeout(PATIENCE, self.queue.send(event.into())).await;
        if sent.is_err() {
            self.sources.slow.fetch_add(1, Relaxed);
            tracing::info!("a reader of /v1/events was dropped: it left its events waiting");
        }
        self.sources.sent.fetch_add(1, Relaxed);
        sent.map_err(|_| Over)?.map_err(|_| Over)
    }
}

/// The events that say which breakers are not as they were.
fn differences(last: &[BreakerState], next: &[BreakerState]) -> String {
    let mut events = String::new();
    let mut say = |breaker: &BreakerState| {
        // Invariant: plain structs with string keys always serialise.
        let data = serde_json::to_string(breaker).unwrap_or_default();
        events.push_str(&format!("event: breaker\ndata: {data}\n\n"));
    };
    // By name: routes may have thousands, of which one has changed.
    let by_name = |all: &[BreakerState]| -> HashMap<(&'static str, Arc<str>), &'static str> {
        all.iter().map(|it| ((it.of, it.name.clone()), it.state)).collect()
    };
    let (known, now) = (by_name(last), by_name(next));
    let is_new = |it: &&BreakerState| known.get(&(it.of, it.name.clone())) != Some(&it.state);
    next.iter().filter(is_new).for_each(&mut say);
    for old in last.iter().filter(|old| !now.contains_key(&(old.of, old.name.clone()))) {
        say(&BreakerState { state: "gone", ..old.clone() });
    }
    events
}

/// The events of one reader as a body.
struct EventBody(mpsc::Receiver<Bytes>);

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(name: &str, state: &'static str) -> BreakerState {
        BreakerState { of: "upstream", name: name.into(), state }
    }

    #[test]
    fn breakers_that_are_as_they_were_are_not_said() {
        let (before, after) =
            ([breaker("a", "closed"), breaker("b", "open")], [breaker("a", "open"), breaker("c", "closed")]);
        let said = differences(&before, &after);
        let data: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(
            data,
            [
                r#"{"of":"upstream","name":"a","state":"open"}"#,
                r#"{"of":"upstream","name":"c","state":"closed"}"#,
                r#"{"of":"upstream","name":"b","state":"gone"}"#,
            ]
        );
        assert_eq!(differences(&after, &after), "");
    }
}
