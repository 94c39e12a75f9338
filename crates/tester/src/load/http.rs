//! HTTP/1.1 as a [`Protocol`]: templates out, replies in and judged by the workload's checks.

use std::{io::Write as _, sync::Arc};

use memchr::memmem::Finder;
use tidegate_algorithms::random::{Random, Zipf};
use tidegate_wire::http1::{Limits, Read, ResponseReader, Values, Variable, Visit, headers};

use super::{
    protocol::{Protocol, Reply, Verdict},
    workload::{Checks, Rows, Workload},
};

/// Checks look at this much of a body; the rest is read and dropped.
const CHECKED_BODY: usize = 64 << 10;

/// One thread's HTTP/1.1.
pub(crate) struct Http {
    workload: Arc<Workload>,
    judges: Vec<Judge>,
    /// Cumulative weights.
    weights: Vec<u64>,
    random: Random,
    source: Source,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

/// One connection's HTTP/1.1.
pub(crate) struct Connection {
    reader: ResponseReader,
    request: u32,
    headers_good: bool,
    /// The body so far, if a check wants it and it came in pieces.
    body: Vec<u8>,
}

impl Http {
    /// Thread `index` of `threads` of a run.
    pub(crate) fn new(workload: Arc<Workload>, seed: u64, index: u32, threads: u32) -> Self {
        let mut total = 0;
        let weights = workload.requests.iter().map(|request| {
            total += u64::from(request.weight);
            total
        });
        let weights = weights.collect();
        let mut random = Random::seeded(seed ^ (u64::from(index) << 32));
        let zipfs = workload.requests.iter().flat_map(|request| request.template.variables());
        let zipfs = zipfs.filter_map(|variable| match *variable {
            Variable::Zipf { n, s } => Some((n, s, Zipf::new(n, s))),
            _ => None,
        });
        let source = Source {
            counter: u64::from(index),
            stride: u64::from(threads.max(1)),
            random: Random::seeded(random.bits()),
            zipfs: zipfs.collect(),
            rows: Arc::clone(&workload.rows),
        };
        Self {
            judges: workload.requests.iter().map(|request| Judge::new(&request.checks)).collect(),
            weights,
            random,
            source,
            workload,
            buffer: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn pick(&mut self) -> usize {
        let total = match self.weights.as_slice() {
            [] | [_] => return 0,
            [.., total] => *total,
        };
        let draw = self.random.below(total);
        self.weights.partition_point(|&below| below <= draw)
    }
}

impl Protocol for Http {
    type State = Connection;

    fn fresh(&self) -> Connection {
        Connection {
            reader: ResponseReader::new(Limits::default()),
            request: 0,
            headers_good: true,
            body: Vec::new(),
        }
    }

    fn request<'a>(&'a mut self, state: &mut Connection) -> &'a [u8] {
        let index = self.pick();
        state.request = index as u32;
        state.headers_good = true;
        state.body.clear();
        let template = &self.workload.requests[index].template;
        state.reader.begin(template.is_head());
        if let Some(fixed) = template.fixed() {
            return fixed;
        }
        self.buffer.clear();
        template.render(&mut self.source, &mut self.scratch, &mut self.buffer);
        self.source.counter += self.source.stride;
        &self.buffer
    }

    fn receive(&mut self, state: &mut Connection, bytes: &[u8]) -> Reply {
        let judge = &self.judges[state.request as usize];
        let read = if judge.wants_nothing {
            state.reader.read(bytes, &mut ())
        } else {
            let mut look = Look { judge, headers_good: &mut state.headers_good, body: &mut state.body };
            state.reader.read(bytes, &mut look)
        };
        match read {
            Ok(Read::More) => Reply::More,
            // Bytes that follow a reply answer no question: the connection cannot be trusted.
            Ok(Read::Done(used)) => judge.done(state, used == bytes.len()),
            Err(_) => Reply::Broken,
        }
    }

    fn closed(&mut self, state: &mut Connection) -> Reply {
        match state.reader.close() {
            Ok(true) => self.judges[state.request as usize].done(state, false),
            Ok(false) | Err(_) => Reply::More,
        }
    }
}

/// Checks with their searchers built.
struct Judge {
    checks: Checks,
    wants_nothing: bool,
    wants_body: bool,
    contains: Vec<Finder<'static>>,
    lacks: Vec<Finder<'static>>,
    denied: Vec<Finder<'static>>,
}

impl Judge {
    fn new(checks: &Checks) -> Self {
        let finders =
            |texts: &[String]| texts.iter().map(|text| Finder::new(text.as_bytes()).into_owned()).collect();
        Self {
            wants_nothing: !checks.wants_head() && !checks.wants_body(),
            wants_body: checks.wants_body(),
            contains: finders(&checks.body_contains),
            lacks: finders(&checks.body_lacks),
            denied: finders(&checks.denied_body),
            checks: checks.clone(),
        }
    }

    fn headers_good(&self, head: &[u8]) -> bool {
        self.checks.headers.iter().all(|check| {
            headers(head).any(|(name, value)| {
                name.eq_ignore_ascii_case(check.name.as_bytes())
                    && memchr::memmem::find(value, check.contains.as_bytes()).is_some()
            })
        })
    }

    fn done(&self, state: &Connection, clean: bool) -> Reply {
        let status = state.reader.status();
        let found = |finder: &Finder<'_>| finder.find(&state.body).is_some();
        let verdict = if self.checks.denied_status.contains(status) || self.denied.iter().any(found) {
            Verdict::Denied
        } else if !self.checks.good_status.contains(status) {
            Verdict::BadStatus
        } else if state.headers_good && self.contains.iter().all(found) && !self.lacks.iter().any(found) {
            Verdict::Good
        } else {
            Verdict::FailedCheck
        };
        Reply::Done { verdict, status, reusable: clean && state.reader.reusable() }
    }
}

struct Look<'a> {
    judge: &'a Judge,
    headers_good: &'a mut bool,
    body: &'a mut Vec<u8>,
}

impl Visit for Look<'_> {
    fn head(&mut self, head: &[u8]) {
        *self.headers_good = self.judge.headers_good(head);
    }

    fn body(&mut self, part: &[u8]) {
        if self.judge.wants_body {
            let room = CHECKED_BODY.saturating_sub(self.body.len());
            self.body.extend_from_slice(&part[..part.len().min(room)]);
        }
    }
}

/// Where the values of variables come from.
struct Source {
    counter: u64,
    stride: u64,
    random: Random,
    zipfs: Vec<(u64, f64, Zipf)>,
    rows: Arc<Rows>,
}

impl Values for Source {
    fn append(&mut self, variable: &Variable, out: &mut Vec<u8>) {
        let number = match variable {
            Variable::Counter { modulo: 0 } => self.counter,
            Variable::Counter { modulo } => self.counter % modulo,
            Variable::Random { low, high } => low + self.random.below((high - low).saturating_add(1)),
            Variable::Zipf { n, s } => {
                let known = self.zipfs.iter().find(|(items, exponent, _)| items == n && exponent == s);
                known.map_or(1, |(.., zipf)| zipf.draw(&mut self.random))
            }
            Variable::Column(name) => {
                let row = (self.counter % (self.rows.cells.len().max(1) as u64)) as usize;
                let column = self.rows.column(name);
                if let Some(cell) = column.and_then(|at| self.rows.cells.get(row)?.get(at)) {
                    out.extend_from_slice(cell.as_bytes());
                }
                return;
            }
        };
        // Writing to a Vec cannot fail.
        write!(out, "{number}").expect("a Vec takes all bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::workload::{HeaderCheck, Request, StatusSet};
    use tidegate_wire::http1::RequestTemplate;

    fn workload(paths: &[(&str, u32)], checks: &Checks) -> Arc<Workload> {
        let requests = paths.iter().map(|&(path, weight)| Request {
            template: RequestTemplate::compile("GET", "h", path, &[], None).unwrap(),
            weight,
            checks: checks.clone(),
        });
        let rows = Rows { columns: vec!["id".into()], cells: vec![vec!["a".into()], vec!["b".into()]] };
        Arc::new(Workload { requests: requests.collect(), rows: Arc::new(rows) })
    }

    fn paths(http: &mut Http, count: usize) -> Vec<String> {
        let mut state = http.fresh();
        let text = (0..count).map(|_| String::from_utf8(http.request(&mut state).to_vec()).unwrap());
        text.map(|request| request.split(' ').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn threads_count_apart_and_rows_follow_the_counter() {
        let workload = workload(&[("/{{counter}}/{{counter % 2}}/{{row.id}}", 1)], &Checks::default());
        let mut second = Http::new(workload, 1, 1, 3);
        assert_eq!(paths(&mut second, 3), ["/1/1/b", "/4/0/a", "/7/1/b"]);
    }

    #[test]
    fn weights_are_kept() {
        let mut http = Http::new(workload(&[("/a", 3), ("/b", 1)], &Checks::default()), 9, 0, 1);
        let a = paths(&mut http, 40_000).iter().filter(|path| *path == "/a").count();
        assert!((a as f64 - 30_000.0).abs() < 600.0, "{a} of 40,000");
    }

    fn judge(checks: &Checks, reply: &str) -> Verdict {
        let mut http = Http::new(workload(&[("/", 1)], checks), 1, 0, 1);
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
