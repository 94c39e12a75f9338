//! The workload: its requests, their proportions, and what counts as a good reply.
//!
//! A workload is compiled once and shared; each thread has its own random numbers and its own share
//! of the counter (thread `i` of `n` counts `i, i + n, ...`, so no two requests of a run carry the
//! same number).

use std::sync::Arc;

use tidegate_wire::http1::{RequestTemplate, Text, Variable};

/// Statuses, as a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet([u64; 10]);

impl StatusSet {
    /// No status.
    pub const EMPTY: Self = Self([0; 10]);

    /// The statuses from `low` to `high`, both included; those above 639 do not exist.
    #[must_use]
    pub fn range(low: u16, high: u16) -> Self {
        let mut set = Self::EMPTY;
        for status in low..=high.min(639) {
            set.0[usize::from(status / 64)] |= 1 << (status % 64);
        }
        set
    }

    /// Both sets together.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
        self
    }

    /// Whether a status is in the set.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.get(usize::from(status / 64)).is_some_and(|word| word >> (status % 64) & 1 == 1)
    }
}

/// A check on one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCheck {
    /// Name, compared without case.
    pub name: String,
    /// Text that the value must contain; empty: the header must be there.
    pub contains: String,
}

/// Which replies are good, and which are denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Statuses of a good reply.
    pub good_status: StatusSet,
    /// Headers of a good reply.
    pub headers: Vec<HeaderCheck>,
    /// Texts that the body of a good reply contains, all of them.
    pub body_contains: Vec<String>,
    /// Texts that it does not.
    pub body_lacks: Vec<String>,
    /// Statuses that are denials.
    pub denied_status: StatusSet,
    /// Texts: if the body has one of them, the reply is a denial.
    pub denied_body: Vec<String>,
}

impl Default for Checks {
    /// Good: 2xx and 3xx. Denied: 429.
    fn default() -> Self {
        Self {
            good_status: StatusSet::range(200, 399),
            headers: Vec::new(),
            body_contains: Vec::new(),
            body_lacks: Vec::new(),
            denied_status: StatusSet::range(429, 429),
            denied_body: Vec::new(),
        }
    }
}

impl Checks {
    pub(crate) fn wants_head(&self) -> bool {
        !self.headers.is_empty()
    }

    pub(crate) fn wants_body(&self) -> bool {
        !(self.body_contains.is_empty() && self.body_lacks.is_empty() && self.denied_body.is_empty())
    }
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is sent over HTTP.
    pub template: RequestTemplate,
    /// What is sent to a RESP server: the command and its arguments.
    pub command: Vec<Text>,
    /// Its share among the workload's requests, above 0.
    pub weight: u32,
    /// How its replies count.
    pub checks: Checks,
}

impl Request {
    /// All variables, of the template and of the command.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.template.variables().chain(self.command.iter().flat_map(Text::variables))
    }
}

/// A table of values for `{{row.column}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, each with as many cells as there are columns.
    pub cells: Vec<Vec<String>>,
}

impl Rows {
    /// Position of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// Requests and their data.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// At least one.
    pub requests: Vec<Request>,
    /// Data of `{{row.…}}`; every column that a template names is there.
    pub rows: Arc<Rows>,
}

impl Workload {
    /// A single GET, good when it is answered by 2xx or 3xx.
    ///
    /// # Errors
    /// When the path or the host are not valid HTTP/1.1.
    pub fn get(host: &str, path: &str) -> Result<Self, tidegate_wire::http1::TemplateError> {
        let template = RequestTemplate::compile("GET", host, path, &[], None)?;
        let request = Request { template, command: Vec::new(), weight: 1, checks: Checks::default() };
        Ok(Self { requests: vec![request], rows: Arc::default() })
    }

    /// Names of the columns that templates use but the data lacks.
    pub fn missing_columns(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().flat_map(Request::variables).filter_map(|variable| match variable {
            Variable::Column(name) if self.rows.column(name).is_none() => Some(name.as_str()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_sets() {
        let set = StatusSet::range(200, 299).union(&StatusSet::range(404, 404));
        assert!(set.contains(200) && set.contains(299) && set.contains(404));
        assert!(!set.contains(199) && !set.contains(300) && !set.contains(999) && !set.contains(0));
    }

    #[test]
    fn columns_that_are_missing_are_named() {
        let mut workload = Workload::get("h", "/{{row.id}}").unwrap();
        assert_eq!(workload.missing_columns().collect::<Vec<_>>(), ["id"]);
        workload.rows = Arc::new(Rows { columns: vec!["id".into()], cells: vec![vec!["1".into()]] });
        assert_eq!(workload.missing_columns().count(), 0);
    }
}
