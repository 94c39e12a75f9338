//! Verdicts on replies: the workload's checks, with their searchers built.

use memchr::memmem::Finder;

use super::{protocol::Verdict, workload::Checks};

/// Checks look at this much of a body; the rest is read and dropped.
const CHECKED_BODY: usize = 64 << 10;

/// The checks of one request.
pub(super) struct Judge {
    checks: Checks,
    wants_body: bool,
    contains: Vec<Finder<'static>>,
    lacks: Vec<Finder<'static>>,
    denied: Vec<Finder<'static>>,
}

impl Judge {
    pub(super) fn new(checks: &Checks) -> Self {
        let finders =
            |texts: &[String]| texts.iter().map(|text| Finder::new(text.as_bytes()).into_owned()).collect();
        Self {
            wants_body: checks.wants_body(),
            contains: finders(&checks.body_contains),
            lacks: finders(&checks.body_lacks),
            denied: finders(&checks.denied_body),
            checks: checks.clone(),
        }
    }

    /// Whether the status decides alone.
    pub(super) fn wants_nothing(&self) -> bool {
        !self.checks.wants_head() && !self.wants_body
    }

    /// Whether the headers are those of a good reply; `fields` lists them once for each check.
    pub(super) fn headers_good<'a, I>(&self, fields: impl Fn() -> I) -> bool
    where
        I: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        self.checks.headers.iter().all(|check| {
            fields().any(|(name, value)| {
                name.eq_ignore_ascii_case(check.name.as_bytes())
                    && memchr::memmem::find(value, check.contains.as_bytes()).is_some()
            })
        })
    }

    /// Keeps a part of the body as far as checks look at it.
    pub(super) fn keep(&self, body: &mut Vec<u8>, part: &[u8]) {
        if self.wants_body {
            let room = CHECKED_BODY.saturating_sub(body.len());
            body.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    /// The verdict on a complete reply.
    pub(super) fn verdict(&self, status: u16, headers_good: bool, body: &[u8]) -> Verdict {
        if self.checks.denied_status.contains(status) || self.denies(body) {
            Verdict::Denied
        } else if !self.checks.good_status.contains(status) {
            Verdict::BadStatus
        } else if headers_good && self.accepts(body) {
            Verdict::Good
        } else {
            Verdict::FailedCheck
        }
    }

    /// Whether the body alone makes it a denial.
    pub(super) fn denies(&self, body: &[u8]) -> bool {
        self.denied.iter().any(|finder| finder.find(body).is_some())
    }

    /// Whether the body passes its checks.
    pub(super) fn accepts(&self, body: &[u8]) -> bool {
        self.contains.iter().all(|finder| finder.find(body).is_some())
            && !self.lacks.iter().any(|finder| finder.find(body).is_some())
    }
}
