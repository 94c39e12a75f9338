//! A server's own figures from its Prometheus page, for a server whose process cannot be seen.
//!
//! Reads the text exposition format far enough to find unlabelled and labelled samples; histograms,
//! types and help lines need no reading here. Used are the `process_*` metrics that every official
//! client library exports. Reference: Prometheus "Exposition formats", text version 0.0.4.

use std::collections::BTreeMap;

use tidegate_judge::diagnose::evidence::ServerDelta;

/// Most samples kept of one page: more is a label explosion, and nothing here looks at it.
pub const MAX_SAMPLES: usize = 10_000;

/// The samples of one page; those with the same name are added up over their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(BTreeMap<String, f64>);

impl Samples {
    /// Reads a page; lines that are not samples are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = BTreeMap::new();
        for (name, value) in text.lines().filter_map(sample).take(MAX_SAMPLES) {
            *found.entry(name.to_owned()).or_insert(0.0) += value;
        }
        Self(found)
    }

    /// The value of a metric, added up over its labels.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// What a server did between two pages `seconds` apart, as far as the pages say. `cores` is what
    /// it may use.
    #[must_use]
    pub fn server(before: &Self, after: &Self, seconds: f64, cores: f64) -> Option<ServerDelta> {
        let cpu = after.value("process_cpu_seconds_total")? - before.value("process_cpu_seconds_total")?;
        let whole = |name: &str| after.value(name).filter(|v| *v >= 0.0).map(|v| v as u64);
        Some(ServerDelta {
            cores,
            cpu: if seconds > 0.0 { (cpu / seconds).max(0.0) } else { 0.0 },
            descriptors: whole("process_open_fds"),
            descriptor_limit: whole("process_max_fds"),
            resident_bytes: whole("process_resident_memory_bytes"),
            ..ServerDelta::default()
        })
    }
}

/// `name{labels} value [time]`.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    // A label's value may hold a brace, so the labels end at the last one.
    let rest = if rest.starts_with('{') { rest.get(rest.rfind('}')? + 1..)? } else { rest };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && value.is_finite()).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "# HELP process_cpu_seconds_total Time.\n# TYPE process_cpu_seconds_total counter\n\
process_cpu_seconds_total 12.5\nprocess_open_fds 1020\nprocess_max_fds 1.024e+03\n\
requests_total{path=\"/a\"} 4 1700000000\nrequests_total{path=\"/}\"} 6\nbad{ 1\nnan_gauge NaN\n";

    #[test]
    fn a_page_is_read_and_summed_over_labels() {
        let page = Samples::parse(PAGE);
        assert_eq!(page.value("requests_total"), Some(10.0));
        assert_eq!(page.value("nan_gauge"), None);
        let before = Samples::parse("process_cpu_seconds_total 2.5\n");
        let server = Samples::server(&before, &page, 10.0, 2.0).unwrap();
        assert_eq!(
            (server.cpu, server.descriptors, server.descriptor_limit),
            (1.0, Some(1_020), Some(1_024))
        );
        assert!(Samples::server(&Samples::default(), &page, 1.0, 1.0).is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[a-z{}\"= 0-9.\n#]{0,200}") {
            let page = Samples::parse(&text);
            prop_assert!(page.0.len() <= text.lines().count());
        }
    }
}
