//! Metrics: `ExportMetricsServiceRequest`, made of a metrics page.
//!
//! The page is in OpenMetrics, as this program writes it: a family's type stands before its series. Counters become
//! cumulative monotonic sums, histograms histograms, and what has another type gauges. A line that is not understood is
//! left out. Names are those of the page, without `_total`: who reads both finds the same numbers.

use std::borrow::Cow;

use super::{Resource, request, text_attribute};
use crate::protobuf::Message;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// When the numbers began, and when they were read, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When the process began to count.
    pub since: u64,
    /// When the page was read.
    pub now: u64,
}

/// The request for a page.
#[must_use]
pub fn encode(resource: Resource<'_>, page: &str, times: Times) -> Vec<u8> {
    request(resource, |scoped| {
        let (mut family, mut help) = (None::<PageFamily<'_>>, "");
        for line in page.lines() {
            if let Some(text) = line.strip_prefix("# HELP ") {
                help = text.split_once(' ').map_or("", |(_, help)| help);
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
            {
                family.take().into_iter().for_each(|family| family.write(scoped, times));
                family =
                    Some(PageFamily { name, kind, help, series: Vec::new(), points: Message::default() });
            } else if let (Some(family), Some(sample)) = (&mut family, Sample::read(line)) {
                family.add(sample, times);
            }
        }
        family.into_iter().for_each(|family| family.write(scoped, times));
    })
}

/// One line.
struct Sample<'a> {
    name: &'a str,
    /// Without braces.
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (name, labels, rest) = match line.find('{') {
            Some(open) => {
                let close = line.rfind('}')?;
                (line.get(..open)?, line.get(open + 1..close)?, line.get(close + 1..)?)
            }
            None => line.split_once(' ').map(|(name, rest)| (name, "", rest))?,
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }
}

/// Each label of a series: its name, and its value as it was before it was written.
fn labels(text: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (name, after) = rest.trim_start_matches(',').split_once("=\"")?;
        let mut is_escaped = false;
        let end = after.char_indices().find(|(_, it)| {
            let ends = *it == '"' && !is_escaped;
            is_escaped = *it == '\\' && !is_escaped;
            ends
        });
        let (end, _) = end?;
        rest = &after[end + 1..];
        let value = &after[..end];
        Some((name, if value.contains('\\') { Cow::Owned(unescaped(value)) } else { Cow::Borrowed(value) }))
    })
}

/// `value` without the backslashes that stand before a backslash, a quote or the letter for a line's end.
fn unescaped(value: &str) -> String {
    let mut characters = value.chars();
    let next = || match characters.next()? {
        '\\' => characters.next().map(|it| if it == 'n' { '\n' } else { it }),
        other => Some(other),
    };
    std::iter::from_fn(next).collect()
}

/// The family whose lines are being read.
struct PageFamily<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    /// The histograms that are not written yet.
    series: Vec<Histogram<'a>>,
    points: Message,
}

struct Histogram<'a> {
    labels: Vec<(&'a str, Cow<'a, str>)>,
    sum: f64,
    count: f64,
    /// How many were at most so large, in the order of the bounds; the last one is infinite.
    buckets: Vec<(f64, f64)>,
}

impl<'a> PageFamily<'a> {
    fn add(&mut self, sample: Sample<'a>, times: Times) {
        if self.kind == "histogram" {
            return self.add_part(&sample);
        }
        let mut point = Message::default();
        if self.kind == "counter" {
            point.fixed64(2, times.since);
        }
        point.fixed64(3, times.now);
        point.double(4, sample.value);
        for (name, value) in labels(sample.labels) {
            text_attribute(&mut point, 7, name, &value);
        }
        self.points.bytes(1, &point.0);
    }

    /// A part of a histogram: its bucket, sum or count.
    fn add_part(&mut self, sample: &Sample<'a>) {
        let (bounds, labels): (Vec<_>, Vec<_>) = labels(sample.labels).partition(|(name, _)| *name == "le");
        let bound = bounds.first().and_then(|(_, bound)| bound.parse().ok());
        let known = self.series.iter().position(|it| it.labels == labels);
        let at = known.unwrap_or_else(|| {
            self.series.push(Histogram { labels, sum: 0.0, count: 0.0, buckets: Vec::new() });
            self.series.len() - 1
        });
        let series = &mut self.series[at];
        match (sample.name.strip_prefix(self.name), bound) {
            (Some("_sum"), _) => series.sum = sample.value,
            (Some("_count"), _) => series.count = sample.value,
            (Some("_bucket"), Some(bound)) => series.buckets.push((bound, sample.value)),
            _ => {}
        }
    }

    fn write(mut self, scoped: &mut Message, times: Times) {
        for series in std::mem::take(&mut self.series) {
            self.points.bytes(1, &series.point(times).0);
        }
        if self.points.0.is_empty() {
            return;
        }
        let mut data = self.points;
        let field = match self.kind {
            "counter" => {
                data.unsigned(2, CUMULATIVE);
                data.unsigned(3, 1);
                7
            }
            "histogram" => {
                data.unsigned(2, CUMULATIVE);
                9
            }
            _ => 5,
        };
        let mut metric = Message::default();
        // The samples of an info have this suffix, its family does not.
        let suffix = if self.kind == "info" { "_info" } else { "" };
        metric.bytes(1, format!("{}{suffix}", self.name).as_bytes());
        metric.bytes(2, self.help.as_bytes());
        metric.bytes(field, &data.0);
        scoped.bytes(2, &metric.0);
    }
}

impl Histogram<'_> {
    fn point(&self, times: Times) -> Message {
        let mut point = Message::default();
        point.fixed64(2, times.since);
        point.fixed64(3, times.now);
        // Whole numbers: they were counts before they were text.
        point.fixed64(4, self.count as u64);
        point.double(5, self.sum);
        let (mut counts, mut bounds, mut before) = (Vec::new(), Vec::new(), 0.0);
        for (bound, many) in &self.buckets {
            counts.extend_from_slice(&((many - before) as u64).to_le_bytes());
            before = *many;
            if bound.is_finite() {
                bounds.extend_from_slice(&bound.to_le_bytes());
            }
        }
        point.bytes(6, &counts);
        point.bytes(7, &bounds);
        for (name, value) in &self.labels {
            text_attribute(&mut point, 9, name, value);
        }
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LineWriter;
    use crate::metrics::otlp::read_request;

    const PAGE: &str = "# HELP requests Requests.\n# TYPE requests counter\nrequests_total{route=\"a\\\"b\\\\n\",to=\"x\"} 3\n\
        # HELP up Whether.\n# TYPE up gauge\nup 1\n\
        # HELP took Time.\n# TYPE took histogram\ntook_sum{r=\"a\"} 0.5\ntook_count{r=\"a\"} 4\n\
        took_bucket{le=\"0.1\",r=\"a\"} 1\ntook_bucket{le=\"1.0\",r=\"a\"} 3\ntook_bucket{le=\"+Inf\",r=\"a\"} 4\n\
        # TYPE build info\nbuild_info{v=\"1\"} 1\n# TYPE nothing gauge\nbad line here\n# EOF\n";

    #[test]
    fn an_intake_reads_the_page_as_it_was() {
        let times = Times { since: 1_000_000_000, now: 2_000_000_000 };
        let request = encode(&[("service.name", "gate")], PAGE, times);
        let mut writer = LineWriter::new("gate", 0, usize::MAX);
        let counts = read_request(&request, &mut writer).unwrap();
        assert_eq!(counts.rejected, 0);
        let lines = String::from_utf8(writer.finish().bytes.to_vec()).unwrap();
        let has = |parts: &[&str]| {
            let found = lines.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            assert!(found, "{parts:?} in\n{lines}");
        };
        has(&["requests", r#"a\"b\\n"#, "3", "counter"]);
        has(&["\"build_info\"", "gauge"]);
        has(&["\"up\"", "gauge"]);
        has(&["took", "sum", "0.5"]);
        has(&["took", "count", "4"]);
        has(&["took", "0.1", "1"]);
        assert!(!lines.contains("bad"), "{lines}");
    }
}
