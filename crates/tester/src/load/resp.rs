//! RESP2 as a [`Protocol`]: the workload's commands out, their replies in.
//!
//! An error reply is an error, and `CL.THROTTLE`'s first number says whether it was a denial; beyond
//! that the body checks of the scenario look at the reply as it came.

use std::sync::Arc;

use super::{
    judge::Judge,
    protocol::{Protocol, Reply, Verdict},
    requests::Requests,
    workload::Workload,
};

/// One thread's RESP.
pub(crate) struct Resp {
    requests: Requests,
    kinds: Vec<CommandJudge>,
}

/// How one command's replies are judged.
struct CommandJudge {
    judge: Judge,
    throttle: bool,
}

/// One connection's reply.
#[derive(Default)]
pub(crate) struct RespConnection {
    request: u32,
    /// The reply so far.
    reply: Vec<u8>,
}

/// Longest reply that is gathered.
const MAX_REPLY: usize = 64 << 10;

impl Resp {
    /// Thread `index` of `threads` of a run.
    pub(crate) fn new(workload: Arc<Workload>, seed: u64, index: u32, threads: u32) -> Self {
        let kinds = workload.requests.iter().map(|request| CommandJudge {
            judge: Judge::new(&request.checks),
            throttle: request.command.first().is_some_and(|name| name.is_word("CL.THROTTLE")),
        });
        Self { kinds: kinds.collect(), requests: Requests::new(workload, seed, index, threads) }
    }
}

impl CommandJudge {
    fn verdict(&self, reply: &[u8]) -> Verdict {
        if self.judge.denies(reply) || (self.throttle && reply.starts_with(b"*5\r\n:1\r\n")) {
            Verdict::Denied
        } else if reply.first() == Some(&b'-') || !self.judge.accepts(reply) {
            Verdict::FailedCheck
        } else {
            Verdict::Good
        }
    }
}

impl Protocol for Resp {
    type State = RespConnection;

    fn fresh(&self) -> RespConnection {
        RespConnection::default()
    }

    fn request<'a>(&'a mut self, state: &mut RespConnection) -> &'a [u8] {
        let picked = self.requests.pick();
        state.request = picked as u32;
        state.reply.clear();
        self.requests.resp(picked)
    }

    fn receive(&mut self, state: &mut RespConnection, bytes: &[u8]) -> Reply {
        if state.reply.len() + bytes.len() > MAX_REPLY {
            return Reply::Broken;
        }
        state.reply.extend_from_slice(bytes);
        match value_end(&state.reply, 0) {
            Some(Ok(end)) if end == state.reply.len() => {
                let verdict = self.kinds[state.request as usize].verdict(&state.reply);
                Reply::Done { verdict, status: 0, reusable: true }
            }
            Some(_) => Reply::Broken,
            None => Reply::More,
        }
    }

    fn closed(&mut self, _: &mut RespConnection) -> Reply {
        Reply::More
    }
}

/// Not RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotResp;

/// Arrays nested deeper than this are no reply to a command that this file sends.
const MAX_DEPTH: u8 = 4;

/// Where the value at the front of `bytes` ends; `None` when it is not complete.
fn value_end(bytes: &[u8], depth: u8) -> Option<Result<usize, NotResp>> {
    let line = memchr::memchr(b'\n', bytes)?;
    let Some((&kind, text)) = bytes[..line].strip_suffix(b"\r").and_then(<[u8]>::split_first) else {
        return Some(Err(NotResp));
    };
    let count = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let mut end = line + 1;
    match (kind, count()) {
        (b'+' | b'-', _) | (b':', Some(_)) | (b'$' | b'*', Some(-1)) => Some(Ok(end)),
        (b'$', Some(length @ 0..=65_536)) => {
            end += length as usize + 2;
            (bytes.len() >= end).then(|| if bytes[..end].ends_with(b"\r\n") { Ok(end) } else { Err(NotResp) })
        }
        (b'*', Some(items @ 0..=1_024)) if depth < MAX_DEPTH => {
            for _ in 0..items {
                match value_end(&bytes[end..], depth + 1)? {
                    Ok(length) => end += length,
                    Err(malformed) => return Some(Err(malformed)),
                }
            }
            Some(Ok(end))
        }
        _ => Some(Err(NotResp)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::workload::{Checks, Request, Workload};
    use proptest::prelude::*;
    use tidegate_wire::http1::Text;

    fn verdict(command: &[&str], denied: &str, reply: &[u8]) -> Option<Verdict> {
        let mut workload = Workload::get("h", "/").unwrap();
        workload.requests[0] = Request {
            command: command.iter().map(|word| Text::parse(word).unwrap()).collect(),
            checks: Checks {
                denied_body: denied.split_whitespace().map(str::to_owned).collect(),
                ..Checks::default()
            },
            ..workload.requests[0].clone()
        };
        let mut resp = Resp::new(Arc::new(workload), 1, 0, 1);
        let mut state = resp.fresh();
        assert!(resp.request(&mut state).starts_with(b"*"));
        let (last, most) = reply.split_last().unwrap();
        assert_eq!(resp.receive(&mut state, most), Reply::More);
        match resp.receive(&mut state, &[*last]) {
            Reply::Done { verdict, .. } => Some(verdict),
            _ => None,
        }
    }

    #[test]
    fn replies_are_told_apart() {
        assert_eq!(verdict(&["PING"], "", b"+PONG\r\n"), Some(Verdict::Good));
        assert_eq!(verdict(&["PING"], "", b"-ERR no\r\n"), Some(Verdict::FailedCheck));
        assert_eq!(verdict(&["PING"], "-ERR", b"-ERR no\r\n"), Some(Verdict::Denied));
        assert_eq!(verdict(&["GET", "x"], "", b"$2\r\nab\r\n"), Some(Verdict::Good));
        let throttle = ["cl.throttle", "k", "1", "1", "60"];
        assert_eq!(verdict(&throttle, "", b"*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"), Some(Verdict::Good));
        assert_eq!(verdict(&throttle, "", b"*5\r\n:1\r\n:2\r\n:0\r\n:60\r\n:60\r\n"), Some(Verdict::Denied));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(Ok(end)) = value_end(&bytes, 0) {
                prop_assert!(end <= bytes.len());
            }
        }
    }
}
