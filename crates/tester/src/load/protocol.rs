//! The seam between the event loop and what is spoken over a connection.
//!
//! The loop is generic over [`Protocol`], so the calls are resolved when it is compiled and a
//! request costs no dynamic dispatch. A protocol sees bytes only: no socket, no clock. So a library
//! that is driven by bytes (rustls, h2 over a pair of buffers) is a protocol like any other, and its
//! latencies are counted by the same code.
//!
//! ```text
//!   connected --open--> (receive/answer)* --Ready--> request --> (receive/answer)* --Done--> request ...
//!                \-- true: no handshake ----------/
//! ```

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What the scenario calls a good reply.
    Good,
    /// Denied by a limit: neither good nor an error.
    Denied,
    /// A status that is neither good nor a denial.
    BadStatus,
    /// The status was good; a check on header or body failed.
    FailedCheck,
}

/// What a protocol made of the bytes it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The reply has begun and is not complete.
    More,
    /// The bytes were about the connection (a handshake, a setting): no reply has begun by them.
    Aside,
    /// The handshake is over: the first request may be sent.
    Ready,
    /// The reply is complete.
    Done {
        /// How it counts.
        verdict: Verdict,
        /// Status code, 0 where the protocol has none.
        status: u16,
        /// Whether the connection may carry another request.
        reusable: bool,
    },
    /// The peer gave the request up, or the connection.
    Reset,
    /// The peer takes no more requests on this connection, and has not taken the present one.
    Goaway,
    /// The bytes are not the protocol.
    Broken,
}

/// One kind of exchange. An instance belongs to one thread.
pub(crate) trait Protocol: Send {
    /// What each connection carries.
    type State: Send;

    /// Opening the connection, with its handshake, is the whole exchange; nothing is sent.
    const CONNECT_ONLY: bool = false;

    /// Connections have a life beside their requests: a handshake, unsolicited bytes, answers to them. Where this is
    /// false such bytes break the connection, and `open` and `answer` are not called.
    const CONVERSES: bool = false;

    /// A peer says when it takes no more requests on a connection: a reply that leaves its connection not reusable came with
    /// that. Where this is false such a reply is one that closes its connection, as both sides agreed.
    const SAYS_GOAWAY: bool = false;

    /// The state of a connection that was not yet opened.
    fn fresh(&self) -> Self::State;

    /// A connection was made, `state` is of an older one or fresh. Whether a request may be sent at
    /// once; if not, `receive` says [`Reply::Ready`] when it may.
    fn open(&mut self, _state: &mut Self::State) -> bool {
        true
    }

    /// The next request's bytes; `state` is made ready for its reply. Empty when the connection
    /// cannot take a request any more.
    fn request<'a>(&'a mut self, state: &mut Self::State) -> &'a [u8];

    /// Takes what arrived.
    fn receive(&mut self, state: &mut Self::State, bytes: &[u8]) -> Reply;

    /// Appends what is to be sent on the connection's own account, after `open` and `receive`.
    fn answer(&mut self, _state: &mut Self::State, _out: &mut Vec<u8>) {}

    /// Where the last reply redirects to, if it does and the protocol looks for that.
    fn location<'s>(&self, _state: &'s Self::State) -> Option<&'s [u8]> {
        None
    }

    /// The peer closed: `Done` if that completes the reply, `More` if it tore it.
    fn closed(&mut self, state: &mut Self::State) -> Reply;
}
