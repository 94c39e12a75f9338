//! One thread's requests: which of the workload's comes next, and the values of its variables.
//!
//! A request is rendered as HTTP/1.1 text whatever carries it, so that there is one way of writing
//! requests; [`super::http2`] reads the text back.

use std::{io::Write as _, sync::Arc};

use tidegate_algorithms::random::{Random, Zipf};
use tidegate_wire::http1::{Text, Values, Variable};

use super::workload::{Rows, Workload};

/// Picks and renders requests.
pub(super) struct Requests {
    workload: Arc<Workload>,
    /// Cumulative weights.
    weights: Vec<u64>,
    random: Random,
    source: ValueSource,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Requests {
    /// The requests of thread `index` of `threads` of a run.
    pub(super) fn new(workload: Arc<Workload>, seed: u64, index: u32, threads: u32) -> Self {
        let mut total = 0;
        let weights = workload.requests.iter().map(|request| {
            total += u64::from(request.weight);
            total
        });
        let weights = weights.collect();
        let mut random = Random::seeded(seed ^ (u64::from(index) << 32));
        let zipfs = workload.requests.iter().flat_map(super::Request::variables);
        let zipfs = zipfs.filter_map(|variable| match *variable {
            Variable::Zipf { n, s } => Some((n, s, Zipf::new(n, s))),
            _ => None,
        });
        let source = ValueSource {
            counter: u64::from(index),
            stride: u64::from(threads.max(1)),
            random: Random::seeded(random.bits()),
            zipfs: zipfs.collect(),
            rows: Arc::clone(&workload.rows),
        };
        Self { weights, random, source, workload, buffer: Vec::new(), scratch: Vec::new() }
    }

    /// What they are picked from.
    pub(super) fn workload(&self) -> &Arc<Workload> {
        &self.workload
    }

    /// Position of the next request in the workload.
    pub(super) fn pick(&mut self) -> usize {
        let total = match self.weights.as_slice() {
            [] | [_] => return 0,
            [.., total] => *total,
        };
        let draw = self.random.below(total);
        self.weights.partition_point(|&below| below <= draw)
    }

    /// A picked request as HTTP/1.1 text.
    pub(super) fn http1(&mut self, picked: usize) -> &[u8] {
        let template = &self.workload.requests[picked].template;
        if let Some(fixed) = template.fixed() {
            return fixed;
        }
        self.buffer.clear();
        template.render(&mut self.source, &mut self.scratch, &mut self.buffer);
        self.source.counter += self.source.stride;
        &self.buffer
    }

    /// A picked request's command as RESP: an array of bulk strings.
    pub(super) fn resp(&mut self, picked: usize) -> &[u8] {
        let command = &self.workload.requests[picked].command;
        self.buffer.clear();
        // Writing to a Vec cannot fail.
        write!(self.buffer, "*{}\r\n", command.len()).expect("a Vec takes all bytes");
        for word in command {
            self.scratch.clear();
            word.render_plain(&mut self.source, &mut self.scratch);
            write!(self.buffer, "${}\r\n", self.scratch.len()).expect("a Vec takes all bytes");
            self.buffer.extend_from_slice(&self.scratch);
            self.buffer.extend_from_slice(b"\r\n");
        }
        if command.iter().flat_map(Text::variables).next().is_some() {
            self.source.counter += self.source.stride;
        }
        &self.buffer
    }
}

/// Where the values of variables come from.
struct ValueSource {
    counter: u64,
    stride: u64,
    random: Random,
    zipfs: Vec<(u64, f64, Zipf)>,
    rows: Arc<Rows>,
}

impl Values for ValueSource {
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
    use crate::load::workload::{Checks, Request};
    use tidegate_wire::http1::RequestTemplate;

    fn workload(paths: &[(&str, u32)]) -> Arc<Workload> {
        let requests = paths.iter().map(|&(path, weight)| Request {
            template: RequestTemplate::compile("GET", "h", path, &[], None).unwrap(),
            command: vec![Text::parse("GET").unwrap(), Text::parse("k{{counter}}").unwrap()],
            weight,
            checks: Checks::default(),
        });
        let rows = Rows { columns: vec!["id".into()], cells: vec![vec!["a".into()], vec!["b".into()]] };
        Arc::new(Workload { requests: requests.collect(), rows: Arc::new(rows) })
    }

    fn paths(requests: &mut Requests, count: usize) -> Vec<String> {
        let text = (0..count).map(|_| {
            let picked = requests.pick();
            String::from_utf8(requests.http1(picked).to_vec()).unwrap()
        });
        text.map(|request| request.split(' ').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn threads_count_apart_and_rows_follow_the_counter() {
        let workload = workload(&[("/{{counter}}/{{counter % 2}}/{{row.id}}", 1)]);
        let mut second = Requests::new(workload, 1, 1, 3);
        assert_eq!(paths(&mut second, 3), ["/1/1/b", "/4/0/a", "/7/1/b"]);
    }

    #[test]
    fn weights_are_kept() {
        let mut requests = Requests::new(workload(&[("/a", 3), ("/b", 1)]), 9, 0, 1);
        let a = paths(&mut requests, 40_000).iter().filter(|path| *path == "/a").count();
        assert!((a as f64 - 30_000.0).abs() < 600.0, "{a} of 40,000");
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings_counted_after_rendering() {
        let mut requests = Requests::new(workload(&[("/", 1)]), 1, 9, 2);
        assert_eq!(requests.resp(0), b"*2\r\n$3\r\nGET\r\n$2\r\nk9\r\n");
        assert_eq!(requests.resp(0), b"*2\r\n$3\r\nGET\r\n$3\r\nk11\r\n");
    }
}
