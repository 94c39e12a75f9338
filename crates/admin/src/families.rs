//! Writing metric families: what `prometheus-client`'s encoder wants said on every call, once.

use std::fmt::Error;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

/// Labels of one series: name and value. Values come from a fixed list or from configured names,
/// never from what a client sent (fault 53).
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Requests that took at most so many seconds, not cumulative; the last bound is infinite.
pub type Buckets<'a> = &'a [(f64, u64)];

/// A writer of metric families, for collectors. Every method fails only when the page is full.
#[derive(Debug)]
pub struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Families<'a> {
    /// Writes to `encoder`.
    #[must_use]
    pub fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self { encoder }
    }

    /// A counter; `_total` is added to its name.
    ///
    /// # Errors
    /// When the page is full.
    pub fn counter<V: EncodeCounterValue>(&mut self, name: &str, help: &str, value: V) -> Result<(), Error> {
        self.family(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    /// A gauge.
    ///
    /// # Errors
    /// When the page is full.
    pub fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A family of counters: `write` is given a function that adds one series.
    ///
    /// # Errors
    /// When the page is full.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        write: impl FnOnce(&mut dyn FnMut(Labels<'_>, u64) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, MetricType::Counter)?;
        write(&mut |labels, value| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
        })
    }

    /// A family of gauges: `write` is given a function that adds one series.
    ///
    /// # Errors
    /// When the page is full.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        write: impl FnOnce(&mut dyn FnMut(Labels<'_>, u64) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        write(&mut |labels, value| family.encode_family(&labels)?.encode_gauge(&value))
    }

    /// A family of histograms: `write` is given a function that adds one series from its sum and
    /// its buckets.
    ///
    /// # Errors
    /// When the page is full.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        write: impl FnOnce(&mut dyn FnMut(Labels<'_>, f64, Buckets<'_>) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        write(&mut |labels, sum, buckets| {
            let count = buckets.iter().map(|(_, count)| count).sum();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
        })
    }

    /// A series that is always 1 and carries what does not change in its labels; `_info` is added
    /// to its name.
    ///
    /// # Errors
    /// When the page is full.
    pub fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) -> Result<(), Error> {
        self.family(name, help, MetricType::Info)?.encode_info(&labels)
    }

    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.encoder.encode_descriptor(name, help, None, kind)
    }
}
