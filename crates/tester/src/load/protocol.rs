//! The seam between the event loop and what is spoken over a connection.
//!
//! The loop is generic over [`Protocol`], so the calls are resolved when it is compiled and a
//! request costs no dynamic dispatch. A protocol sees bytes only: no socket, no clock.

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
    /// The reply is not complete.
    More,
    /// The reply is complete.
    Done {
        /// How it counts.
        verdict: Verdict,
        /// Status code, 0 where the protocol has none.
        status: u16,
        /// Whether the connection may carry another request.
        reusable: bool,
    },
    /// The bytes are not the protocol.
    Broken,
}

/// One kind of exchange. An instance belongs to one thread.
pub(crate) trait Protocol: Send {
    /// What each connection carries.
    type State: Send;

    /// Opening the connection is the whole exchange; nothing is sent.
    const CONNECT_ONLY: bool = false;

    /// The state of a connection that was just opened.
    fn fresh(&self) -> Self::State;

    /// The next request's bytes; `state` is made ready for its reply.
    fn request<'a>(&'a mut self, state: &mut Self::State) -> &'a [u8];

    /// Takes what arrived.
    fn receive(&mut self, state: &mut Self::State, bytes: &[u8]) -> Reply;

    /// The peer closed: `Done` if that completes the reply, `More` if it tore it.
    fn closed(&mut self, state: &mut Self::State) -> Reply;
}
