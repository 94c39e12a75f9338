//! Reading lines back: one request for some lines, or a stream of events.
//!
//! ```text
//!   GET /v1/intake/read ── from ──> lines, and tidegate-next-offset
//!        `?group=g`: where the group is        │ done with them
//!   POST /v1/intake/commit?group=g&offset=<next> ── durable ──> 204
//! ```
//!
//! At least once: a group moves only by a commit, so a reader that dies between reading and committing reads its
//! lines again (fault 70). Reading never blocks writing; files are read on a few threads of their own.
//!
//! | bound | value | reached |
//! |---|---|---|
//! | lines of a reply | `max`, up to 10,000 | the next request goes on |
//! | bytes of a reply | 4 MiB | the same |
//! | wait for lines | `wait`, up to 60 seconds | an empty reply |
//! | readers and commits at the files at once | 8 | the others wait for one of them |
//! | queries | 4 | the same: they take up to five seconds, and hold up nobody but each other |
//! | forwards | 8 | the same |
//! | streams | 64 | 503 |

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use tidegate_log::{GroupError, ReadError, ReadLines, is_group_name};
use tidegate_net::drain::Stage;
use tidegate_net::http::{Body, EndsWithListener, Peer};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::access::Right;
use crate::forward::GROUP_PREFIX;
use crate::intake::Intake;
use crate::readers::{Readers, Turn};
use crate::refusal::Refusal;

/// Most lines of a reply.
const MAX_LINES: u64 = 10_000;
/// Lines of a reply, unless the request says otherwise.
const DEFAULT_LINES: u64 = 1_000;
/// Most bytes of a reply, unless one line has more.
const MAX_BYTES: usize = 4 << 20;
/// Longest wait for lines, in seconds.
const MAX_WAIT: u64 = 60;
/// Events that wait for their reader, each with some lines.
const QUEUED_EVENTS: usize = 2;
/// Most lines of such an event.
const EVENT_LINES: u64 = 500;
/// A stream without lines says this often that it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

const FIRST_OFFSET: HeaderName = HeaderName::from_static("tidegate-first-offset");
const NEXT_OFFSET: HeaderName = HeaderName::from_static("tidegate-next-offset");
const PARTITIONS: HeaderName = HeaderName::from_static("tidegate-partitions");
const MISSING: HeaderName = HeaderName::from_static("tidegate-missing");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Where a request begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Oldest,
    Newest,
    Offset(u64),
}

/// What a request asks for.
#[derive(Debug)]
struct ReadRequest {
    group: Option<String>,
    partition: u16,
    from: Option<Start>,
    offset: Option<u64>,
    max: u64,
    wait: Duration,
}

/// The parameters of a read.
const READ_PARAMETERS: &[&str] = &["group", "partition", "from", "max", "wait"];
/// Those of a commit.
const COMMIT_PARAMETERS: &[&str] = &["group", "partition", "offset"];

impl ReadRequest {
    /// Reads the parameters of a request that has those in `known`.
    fn parse(head: &Head, known: &[&str]) -> Result<Self, Refusal> {
        let mut asked = Self {
            group: None,
            partition: 0,
            from: None,
            offset: None,
            max: DEFAULT_LINES,
            wait: Duration::ZERO,
        };
        let query = head.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let wrong = || Refusal::Malformed(format!("the parameter {name} is not acceptable"));
            if !known.contains(&&*name) {
                let known = known.join(", ");
                return Err(Refusal::Malformed(format!("there is no parameter {name} here, only {known}")));
            }
            match &*name {
                "group" if !is_group_name(&value) => return Err(GroupError::Name.into()),
                "group" => asked.group = Some(value.into_owned()),
                "partition" => asked.partition = value.parse().map_err(|_| wrong())?,
                "from" => asked.from = Some(parse_start(&value).ok_or_else(wrong)?),
                "offset" => asked.offset = Some(value.parse().map_err(|_| wrong())?),
                "max" => {
                    let max = value.parse().ok().filter(|max| (1..=MAX_LINES).contains(max));
                    asked.max = max.ok_or_else(wrong)?;
                }
                "wait" => {
                    let wait = value.parse().ok().filter(|wait| *wait <= MAX_WAIT);
                    asked.wait = Duration::from_secs(wait.ok_or_else(wrong)?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(asked)
    }
}

fn parse_start(text: &str) -> Option<Start> {
    match text {
        "oldest" => Some(Start::Oldest),
        "newest" => Some(Start::Newest),
        offset => offset.parse().ok().map(Start::Offset),
    }
}

impl Intake {
    /// Answers with lines, or with a stream of them.
    pub(crate) async fn read(self: &Arc<Self>, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let asked = ReadRequest::parse(head, READ_PARAMETERS)?;
        let reply = |read: &ReadLines| reply(read, self.log().partitions());
        let mut at = self.start(&asked)?;
        if wants_events(&head.headers) {
            if let Some(id) = head.headers.get(LAST_EVENT_ID) {
                let id = id.to_str().ok().and_then(|id| id.parse().ok());
                at = id.ok_or_else(|| Refusal::Malformed("last-event-id is no offset".to_owned()))?;
            }
            return self.stream(asked.partition, at);
        }
        let (log, drain) = (self.log(), &self.parts.drain);
        let mut lines = self.lines(asked.partition, at, asked.max).await;
        if asked.from.is_none()
            && let Err(Refusal::Read(ReadError::Gone { oldest })) = lines
        {
            // The log no longer has the group's offset: the group goes on with the oldest lines that there are, and
            // is told what it missed.
            lines = self.lines(asked.partition, oldest, asked.max).await;
            return lines.map(|lines| reply(&ReadLines { missing: Some(at..oldest), ..lines }));
        }
        let lines = lines?;
        // What is missing is told at once, for the next lines say no more of it.
        if lines.count > 0 || lines.missing.is_some() || asked.wait.is_zero() {
            return Ok(reply(&lines));
        }
        tokio::select! {
            // Running out of time is how this wait ends when nothing comes.
            _came = timeout(asked.wait, log.wait_past(asked.partition, lines.next_offset)) => {}
            () = drain.reached(Stage::Draining) => {}
        }
        Ok(reply(&self.lines(asked.partition, lines.next_offset, asked.max).await?))
    }

    /// Notes how far a group has come.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        head: &Head,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let ReadRequest { group: Some(group), partition, offset: Some(offset), .. } =
            ReadRequest::parse(head, COMMIT_PARAMETERS)?
        else {
            return Err(Refusal::Malformed("group and offset must be given".to_owned()));
        };
        if group.starts_with(GROUP_PREFIX) {
            return Err(Refusal::Malformed(format!(
                "groups that begin with {GROUP_PREFIX} are those of forwards"
            )));
        }
        let log = Arc::clone(self.log());
        self.on_a_thread(Turn::Read, move || log.commit(&group, partition, offset)).await??;
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// The offset at which a request begins to read.
    fn start(&self, asked: &ReadRequest) -> Result<u64, Refusal> {
        let Some(kept) = self.log().offsets(asked.partition) else {
            return Err(Refusal::Read(ReadError::NoPartition(asked.partition)));
        };
        let committed = || self.log().committed(asked.group.as_deref()?, asked.partition);
        Ok(match asked.from {
            Some(Start::Offset(offset)) => offset,
            Some(Start::Newest) => kept.end,
            Some(Start::Oldest) => kept.start,
            None => committed().unwrap_or(kept.start),
        })
    }

    async fn lines(self: &Arc<Self>, partition: u16, at: u64, max: u64) -> Result<ReadLines, Refusal> {
        let log = Arc::clone(self.log());
        Ok(self.on_a_thread(Turn::Read, move || log.read(partition, at, max, MAX_BYTES)).await??)
    }

    /// Runs a call that blocks on the disk, on a thread where no request waits behind it.
    pub(crate) async fn on_a_thread<T: Send + 'static>(
        &self,
        turn: Turn,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let Readers { files, queries, forwards, .. } = &self.readers;
        let turns = match turn {
            Turn::Read => files,
            Turn::Query => queries,
            Turn::Forward => forwards,
        };
        // Invariant: no semaphore is ever closed.
        let _turn = turns.acquire().await.map_err(|_| Refusal::NoReader)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::NoReader)
    }

    /// A stream of events from this offset on, until the client leaves or the process ends.
    fn stream(self: &Arc<Self>, partition: u16, at: u64) -> Result<Response<Body>, Refusal> {
        let streams = Arc::clone(&self.readers.streams);
        let permit = streams.try_acquire_owned().map_err(|_| Refusal::TooManyStreams)?;
        let (sender, events) = mpsc::channel(QUEUED_EVENTS);
        let intake = Arc::clone(self);
        drop(tokio::spawn(async move { intake.feed(partition, at, sender, permit).await }));
        let mut response = Response::new(Body::streamed(EventStream(events)));
        response.extensions_mut().insert(EndsWithListener);
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    async fn feed(
        self: Arc<Self>,
        partition: u16,
        mut at: u64,
        sender: mpsc::Sender<Bytes>,
        permit: OwnedSemaphorePermit,
    ) {
        let (log, drain) = (self.log(), &self.parts.drain);
        loop {
            let event = match self.lines(partition, at, EVENT_LINES).await {
                Ok(lines) if lines.count > 0 => {
                    at = lines.next_offset;
                    events(&lines)
                }
                // Their files were lost or damaged: waiting would not bring them.
                Ok(ReadLines { next_offset, .. }) if next_offset > at => missing(&mut at, next_offset),
                Ok(_) => Bytes::new(),
                Err(Refusal::Read(ReadError::Gone { oldest })) => missing(&mut at, oldest),
                Err(refusal) => {
                    // It is the last one; the client comes back with the id that it saw.
                    drop(sender.send(format!("event: error\ndata: {refusal}\n\n").into()).await);
                    break;
                }
            };
            let event = if event.is_empty() {
                tokio::select! {
                    came = timeout(HEARTBEAT, log.wait_past(partition, at)) => match came {
                        Ok(()) => continue,
                        Err(_) => Bytes::from_static(b":\n\n"),
                    },
                    () = drain.reached(Stage::Draining) => break,
                    () = sender.closed() => break,
                }
            } else {
                event
            };
            if sender.send(event).await.is_err() {
                break;
            }
        }
        drop(permit);
    }
}

fn wants_events(fields: &HeaderMap) -> bool {
    let accepted = fields.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|range| range.trim().starts_with("text/event-stream"))
}

fn reply(read: &ReadLines, partitions: u16) -> Response<Body> {
    let mut response = Response::new(Body::Full(read.lines.clone()));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    fields.insert(FIRST_OFFSET, read.first_offset.into());
    fields.insert(NEXT_OFFSET, read.next_offset.into());
    fields.insert(PARTITIONS, partitions.into());
    if let Some(missing) = &read.missing
        && let Ok(range) = HeaderValue::try_from(format!("{}-{}", missing.start, missing.end))
    {
        fields.insert(MISSING, range);
    }
    response
}

/// Says that the lines from `at` on are not there, and goes on behind them.
fn missing(at: &mut u64, next: u64) -> Bytes {
    let event = format!("event: missing\ndata: {at}-{next}\n\n");
    *at = next;
    event.into()
}

/// A line each, under the offset to go on from.
fn events(read: &ReadLines) -> Bytes {
    let mut text = BytesMut::with_capacity(read.lines.len() + 32 * read.lines.len() / 100);
    let lines = read.lines.split_inclusive(|byte| *byte == b'\n');
    for (offset, line) in (read.first_offset..).zip(lines) {
        text.put_slice(format!("id: {}\ndata: ", offset + 1).as_bytes());
        text.put_slice(line);
        text.put_u8(b'\n');
    }
    text.freeze()
}

/// A stream's events, as a body.
struct EventStream(mpsc::Receiver<Bytes>);

impl http_body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
