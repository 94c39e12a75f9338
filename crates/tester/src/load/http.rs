//! HTTP/1.1 as a [`Protocol`]: templates out, replies in and judged by the workload's checks.

use std::sync::Arc;

use tidegate_wire::http1::{Limits, Read, ResponseReader, Visit, headers};

use super::{
    judge::Judge,
    protocol::{Protocol, Reply},
    requests::Requests,
    workload::Workload,
};

/// One thread's HTTP/1.1.
pub(crate) struct Http {
    requests: Requests,
    judges: Vec<Judge>,
    /// Keeps where replies redirect to.
    locations: bool,
}

/// One connection's HTTP/1.1.
pub(crate) struct Http1Connection {
    reader: ResponseReader,
    request: u32,
    headers_good: bool,
    /// The body so far, if a check wants it and it came in pieces.
    body: Vec<u8>,
    /// Where the reply redirects to, if that is kept.
    location: Option<Vec<u8>>,
}

impl Http {
    /// Thread `index` of `threads` of a run.
    pub(crate) fn new(workload: Arc<Workload>, seed: u64, index: u32, threads: u32) -> Self {
        Self {
            judges: workload.requests.iter().map(|request| Judge::new(&request.checks)).collect(),
            requests: Requests::new(workload, seed, index, threads),
            locations: false,
        }
    }

    /// The same, and [`Protocol::location`] says where a reply redirects to. Load is made without it.
    pub(crate) fn with_locations(self) -> Self {
        Self { locations: true, ..self }
    }
}

impl Protocol for Http {
    type State = Http1Connection;

    fn fresh(&self) -> Http1Connection {
        Http1Connection {
            reader: ResponseReader::new(Limits::default()),
            request: 0,
            headers_good: true,
            body: Vec::new(),
            location: None,
        }
    }

    fn request<'a>(&'a mut self, state: &mut Http1Connection) -> &'a [u8] {
        let index = self.requests.pick();
        state.request = index as u32;
        state.headers_good = true;
        state.body.clear();
        state.reader.begin(self.requests.workload().requests[index].template.is_head());
        self.requests.http1(index)
    }

    fn receive(&mut self, state: &mut Http1Connection, bytes: &[u8]) -> Reply {
        let judge = &self.judges[state.request as usize];
        let read = if judge.wants_nothing() && !self.locations {
            state.reader.read(bytes, &mut ())
        } else {
            let mut look = ResponseLook {
                judge,
                headers_good: &mut state.headers_good,
                body: &mut state.body,
                location: self.locations.then_some(&mut state.location),
            };
            state.reader.read(bytes, &mut look)
        };
        match read {
            Ok(Read::More) => Reply::More,
            // Bytes that follow a reply answer no question: the connection cannot be trusted.
            Ok(Read::Done(used)) => done(judge, state, used == bytes.len()),
            Err(_) => Reply::Broken,
        }
    }

    fn location<'s>(&self, state: &'s Http1Connection) -> Option<&'s [u8]> {
        state.location.as_deref()
    }

    fn closed(&mut self, state: &mut Http1Connection) -> Reply {
        match state.reader.close() {
            Ok(true) => done(&self.judges[state.request as usize], state, false),
            Ok(false) | Err(_) => Reply::More,
        }
    }
}

fn done(judge: &Judge, state: &Http1Connection, clean: bool) -> Reply {
    let status = state.reader.status();
    Reply::Done {
        verdict: judge.verdict(status, state.headers_good, &state.body),
        status,
        reusable: clean && state.reader.reusable(),
    }
}

struct ResponseLook<'a> {
    judge: &'a Judge,
    headers_good: &'a mut bool,
    body: &'a mut Vec<u8>,
    location: Option<&'a mut Option<Vec<u8>>>,
}

impl Visit for ResponseLook<'_> {
    fn head(&mut self, head: &[u8]) {
        *self.headers_good = self.judge.headers_good(|| headers(head));
        if let Some(location) = &mut self.location {
            let mut fields = headers(head);
            let found = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"location"));
            **location = found.map(|(_, value)| value.to_vec());
        }
    }

    fn body(&mut self, part: &[u8]) {
        self.judge.keep(self.body, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{
        protocol::Verdict,
        workload::{Checks, HeaderCheck, Request, StatusSet},
    };
    use tidegate_wire::http1::RequestTemplate;

    fn judge(checks: &Checks, reply: &str) -> Verdict {
        let template = RequestTemplate::compile("GET", "h", "/", &[], None).unwrap();
        let request = Request { template, command: Vec::new(), weight: 1, checks: checks.clone() };
        let workload = Workload { requests: vec![request], rows: Arc::default() };
        let mut http = Http::new(Arc::new(workload), 1, 0, 1);
        let mut state = http.fresh();
        assert!(!http.request(&mut state).is_empty());
        let (first, second) = reply.as_bytes().split_at(reply.len() / 2);
        let outcome = match http.receive(&mut state, first) {
            Reply::More => http.receive(&mut state, second),
            done => done,
        };
        match outcome {
            Reply::Done { verdict, .. } => verdict,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn replies_are_judged_by_status_header_and_body() {
        let checks = Checks {
            good_status: StatusSet::range(200, 200),
            headers: vec![HeaderCheck { name: "X-A".into(), contains: "yes".into() }],
            body_contains: vec!["allowed".into()],
            body_lacks: vec!["oops".into()],
            denied_body: vec!["\"allowed\":false".into()],
            ..Checks::default()
        };
        let reply = |status: u16, header: &str, body: &str| {
            format!("HTTP/1.1 {status} X\r\nx-a: {header}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        assert_eq!(judge(&checks, &reply(200, "oh yes", "{\"allowed\":true}")), Verdict::Good);
        assert_eq!(judge(&checks, &reply(200, "yes", "{\"allowed\":false}")), Verdict::Denied);
        assert_eq!(judge(&checks, &reply(429, "yes", "")), Verdict::Denied);
        assert_eq!(judge(&checks, &reply(500, "yes", "")), Verdict::BadStatus);
        assert_eq!(judge(&checks, &reply(200, "no", "allowed")), Verdict::FailedCheck);
        assert_eq!(judge(&checks, &reply(200, "yes", "allowed oops")), Verdict::FailedCheck);
        assert_eq!(judge(&checks, &reply(200, "yes", "nothing")), Verdict::FailedCheck);
    }
}
