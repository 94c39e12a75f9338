//! A stub's connection, and the reply bytes it sends.

use std::{io::Write as _, os::fd::OwnedFd};

use super::{behaviour::ReplyFate, options::StubOptions};

/// Where a connection is in its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeStage {
    /// Waiting for a request, or in the middle of one.
    Reading,
    /// A request waits for its time, for the upstream, or for ever.
    Waiting,
    /// A reply is being written.
    Writing,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StubAsk {
    Work,
    /// `GET /__stub/stats`
    Stats,
    /// `GET /__stub/reset`
    Reset,
}

impl StubAsk {
    pub(super) fn of(target: &[u8]) -> Self {
        match target {
            b"/__stub/stats" => Self::Stats,
            b"/__stub/reset" => Self::Reset,
            _ => Self::Work,
        }
    }
}

pub(super) struct StubConnection {
    pub(super) fd: OwnedFd,
    pub(super) stage: ExchangeStage,
    pub(super) ask: StubAsk,
    /// The head of the present request was read; `body_left` bytes follow.
    pub(super) in_body: bool,
    pub(super) body_left: u64,
    pub(super) keep_alive: bool,
    /// Bytes that could not be used yet.
    pub(super) input: Vec<u8>,
    /// Bytes that the socket did not take yet.
    pub(super) output: Vec<u8>,
    pub(super) pieces_left: u32,
    pub(super) arrived: u64,
    pub(super) fate: Option<ReplyFate>,
}

impl StubConnection {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            stage: ExchangeStage::Reading,
            ask: StubAsk::Work,
            in_body: false,
            body_left: 0,
            keep_alive: true,
            input: Vec::new(),
            output: Vec::new(),
            pieces_left: 0,
            arrived: 0,
            fate: None,
        }
    }
}

/// A place in the server's table; `generation` tells one connection from the next in it.
#[derive(Default)]
pub(super) struct StubPlace {
    pub(super) generation: u32,
    pub(super) connection: Option<StubConnection>,
}

/// Replies, rendered once.
pub(super) struct Replies {
    plain: Vec<u8>,
    body: Vec<u8>,
    pieces: usize,
}

impl Replies {
    pub(super) fn new(options: &StubOptions) -> Self {
        let body = match &options.body {
            Some(text) => text.as_bytes().to_vec(),
            None => vec![b'x'; options.body_bytes as usize],
        };
        let mut plain = Vec::new();
        render(200, true, &body, &mut plain);
        Self { plain, body, pieces: options.body_pieces.max(1) as usize }
    }

    /// The usual reply, whole.
    pub(super) fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// A reply with another status or that closes; in pieces, only its head and first piece.
    pub(super) fn first(&self, status: u16, keep_alive: bool, out: &mut Vec<u8>) {
        render(status, keep_alive, &self.body, out);
        let later: usize = (1..self.pieces).map(|index| self.piece(index)).sum();
        out.truncate(out.len() - later);
    }

    /// Length of a piece of the body.
    pub(super) fn piece(&self, index: usize) -> usize {
        self.body.len() / self.pieces + usize::from(index < self.body.len() % self.pieces)
    }
}

/// Appends a reply with this body.
fn render(status: u16, keep_alive: bool, body: &[u8], out: &mut Vec<u8>) {
    let connection = if keep_alive { "" } else { "Connection: close\r\n" };
    // Writing to a Vec cannot fail.
    write!(out, "HTTP/1.1 {status} Stub\r\nContent-Length: {}\r\n{connection}\r\n", body.len())
        .expect("a Vec takes all bytes");
    out.extend_from_slice(body);
}

/// Appends a JSON reply.
pub(super) fn render_json(json: &str, out: &mut Vec<u8>) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        json.len()
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(json.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up_to_the_whole_reply() {
        let mut options = StubOptions::new(([127, 0, 0, 1], 0).into());
        (options.body_bytes, options.body_pieces) = (10, 4);
        let replies = Replies::new(&options);
        let (mut whole, mut first) = (Vec::new(), Vec::new());
        render(200, true, &[b'x'; 10], &mut whole);
        replies.first(200, true, &mut first);
        let rest: usize = (1..4).map(|index| replies.piece(index)).sum();
        assert_eq!((first.len() + rest, replies.piece(0)), (whole.len(), 3));
        assert!(whole.starts_with(&first));
    }
}
