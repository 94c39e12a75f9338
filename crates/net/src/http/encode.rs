//! HTTP/1.1 replies as bytes (RFC 9112), in the form in which hyper writes them.

use std::cell::Cell;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use http::header::HeaderMap;
use http::{HeaderName, StatusCode, header};
use httpdate::HttpDate;

use crate::clock::wall;
use crate::stats::Route;

/// A reply that is written straight to where it leaves from: [`Unwritten::head`], fields, and
/// [`Head::end`], which alone makes an [`Answered`].
pub struct Unwritten<'a>(&'a mut Vec<u8>);

/// The head of such a reply; fields can be added to it.
pub struct Head<'a> {
    output: &'a mut Vec<u8>,
    status: StatusCode,
    stated: StatedFields,
}

/// Fields that a service wrote itself, of those that are added where they are missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatedFields {
    pub(super) length: bool,
    pub(super) date: bool,
}

impl StatedFields {
    fn saw(&mut self, name: &HeaderName) {
        self.length |= *name == header::CONTENT_LENGTH;
        self.date |= *name == header::DATE;
    }
}

/// Says that a reply was written, and what it counts as.
#[derive(Debug)]
pub struct Answered {
    route: Route,
    status: StatusCode,
}

impl<'a> Unwritten<'a> {
    pub(super) fn new(output: &'a mut Vec<u8>) -> Self {
        Self(output)
    }

    /// Writes the status line.
    #[must_use]
    pub fn head(self, status: StatusCode) -> Head<'a> {
        make_room(self.0);
        put_status(self.0, status);
        Head { output: self.0, status, stated: StatedFields::default() }
    }
}

impl Head<'_> {
    /// Adds a field, whose value `write` appends: printable ASCII.
    pub fn field(&mut self, name: &HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.stated.saw(name);
        self.output.extend_from_slice(name.as_str().as_bytes());
        self.output.extend_from_slice(b": ");
        write(self.output);
        self.output.extend_from_slice(b"\r\n");
    }

    /// Ends the head; `write` appends the body. The reply counts under `route`.
    #[must_use]
    pub fn end(self, route: Route, write: impl FnOnce(&mut Vec<u8>)) -> Answered {
        let Self { output, status, stated } = self;
        let head = output.len();
        end_head(output, None, stated);
        let body = output.len();
        write(output);
        if !stated.length {
            // Known only now, and in its place before the date.
            let end = output.len();
            put_length(output, (end - body) as u64);
            let field = output.len() - end;
            output[head..].rotate_right(field);
        }
        Answered { route, status }
    }

    /// Ends the head of a reply whose status says that there is no body: 204. It counts under `route`.
    #[must_use]
    pub fn end_without_body(self, route: Route) -> Answered {
        end_head(self.output, None, self.stated);
        Answered { route, status: self.status }
    }
}

impl Answered {
    /// What it counts under.
    #[must_use]
    pub fn route(&self) -> Route {
        self.route
    }

    /// The status that was written.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

thread_local! {
    /// The buffer that the last replies of this thread left from.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that most replies fit into.
const SHORT_BYTES: usize = 512;
/// Most bytes of a buffer that a thread keeps.
const KEPT_BYTES: usize = 32 << 10;

/// Makes room for a reply: in the buffer that earlier ones of this thread left from, if `output` has none.
pub(super) fn make_room(output: &mut Vec<u8>) {
    if output.capacity() == 0 {
        *output = SPARE.take();
    }
    output.reserve(SHORT_BYTES);
}

/// Keeps the buffer of replies that are written for the next ones of this thread.
pub(super) fn keep(mut output: Vec<u8>) {
    if (1..=KEPT_BYTES).contains(&output.capacity()) {
        output.clear();
        SPARE.set(output);
    }
}

/// Writes the status line and `fields`; what [`end_head`] need not add to them.
pub(super) fn put_head(output: &mut Vec<u8>, status: StatusCode, fields: &HeaderMap) -> StatedFields {
    put_status(output, status);
    let mut stated = StatedFields::default();
    for (name, value) in fields {
        stated.saw(name);
        put_field(output, name.as_str(), value.as_bytes());
    }
    stated
}

fn put_status(output: &mut Vec<u8>, status: StatusCode) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    output.extend_from_slice(b"\r\n");
}

pub(super) fn put_field(output: &mut Vec<u8>, name: &str, value: &[u8]) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

fn put_length(output: &mut Vec<u8>, length: u64) {
    put_field(output, "content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// What every head ends with: the length, where there is one to state, and the date, unless they were stated.
pub(super) fn end_head(output: &mut Vec<u8>, length: Option<u64>, stated: StatedFields) {
    if let Some(length) = length.filter(|_| !stated.length) {
        put_length(output, length);
    }
    if !stated.date {
        put_field(output, "date", &date());
    }
    output.extend_from_slice(b"\r\n");
}

pub(super) fn put_piece(output: &mut Vec<u8>, data: &[u8], chunked: bool) {
    if data.is_empty() {
        return;
    }
    if chunked {
        output.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    }
    output.extend_from_slice(data);
    if chunked {
        output.extend_from_slice(b"\r\n");
    }
}

/// The present second as an HTTP date (RFC 9110, 5.6.7), written once per second and thread.
fn date() -> [u8; 29] {
    thread_local! {
        static LAST: Cell<(u64, [u8; 29])> = const { Cell::new((u64::MAX, [0; 29])) };
    }
    let second = wall().0 / 1_000_000_000;
    let (at, mut text) = LAST.get();
    if at != second {
        let formatted = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        // Invariant: it fits, for it has 29 bytes until the year 9999.
        drop(write!(&mut text[..], "{formatted}"));
        LAST.set((second, text));
    }
    text
}
