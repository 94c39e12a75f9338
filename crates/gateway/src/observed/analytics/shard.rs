//! A core's shard of the counts, so that cores wait for each other only when a minute ends or somebody asks.
//!
//! A shard has requests of one minute. It is emptied into the batch of that minute by whoever wants to know or to store, and by the
//! first request of another minute. Nobody else takes its lock but the requests of its own core; cores beyond [`SHARDS`] share one.
//!
//! A request finds its sums by numbers ([`SeriesKey`]): of its route, of its upstream and server, and the place in memory of its key's
//! id. Names are looked up and copied once for a combination, a minute and a core, when the first request has it. A route that was
//! edited has another number under the same name: the batch brings the two together again.
//!
//! Bound: [`MAX_SERIES`] combinations in each, of about 1.4 KiB with their names. One that is full is emptied into the batch first, which
//! then tells who is counted as `others`.

use std::collections::HashMap;

use tidegate_control::Sums;

use super::MAX_SERIES;
use super::labels::Labels;
use super::latency::{self, CLASSES};
use crate::authentication::identity::Identity;

/// Most shards there are: one for each core of most machines.
pub(super) const SHARDS: usize = 16;

/// What a request is found by; 0 where it has no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) route: u64,
    pub(super) upstream: u64,
    pub(super) server: usize,
    /// Where its API key's id is. It stays there, since the series holds the key.
    pub(super) key: usize,
    pub(super) status: u16,
}

/// A request as it is added to sums.
#[derive(Debug)]
pub(super) struct EndedRequest {
    pub(super) key: SeriesKey,
    pub(super) bytes: u64,
    pub(super) micros: u64,
}

/// Requests of a minute with the same labels.
#[derive(Debug)]
pub(super) struct CountedSeries {
    pub(super) labels: Labels,
    /// Whose API key it is, so that no other key comes to be at the same place.
    _key: Option<Identity>,
    sums: Box<SeriesSums>,
}

/// Their sums. Times are in a list of all classes: a sum is found without a search.
#[derive(Debug)]
struct SeriesSums {
    requests: u64,
    bytes: u64,
    micros: u64,
    classes: [u32; CLASSES],
}

impl CountedSeries {
    /// Without requests yet.
    pub(super) fn new(labels: Labels, key: Option<Identity>) -> Self {
        let sums = SeriesSums { requests: 0, bytes: 0, micros: 0, classes: [0; CLASSES] };
        Self { labels, _key: key, sums: Box::new(sums) }
    }

    /// Its labels, and its sums as batches have them.
    pub(super) fn into_sums(self) -> (Labels, Sums) {
        let SeriesSums { requests, bytes, micros, classes } = *self.sums;
        let classes = (0_u16..).zip(classes).filter(|(_, count)| *count > 0);
        let classes = classes.map(|(class, count)| (class, u64::from(count))).collect();
        (self.labels, Sums { requests, bytes, micros, classes })
    }
}

/// Requests of a minute that were counted and are in no batch yet. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct CountShard {
    pub(super) minute: u64,
    pub(super) series: HashMap<SeriesKey, CountedSeries>,
}

impl CountShard {
    /// Whether there is room for a request.
    pub(super) fn has_room(&self, key: &SeriesKey) -> bool {
        self.series.len() < MAX_SERIES || self.series.contains_key(key)
    }

    /// Counts a request. `named`: its series, if it is the first one of it.
    pub(super) fn add(&mut self, ended: &EndedRequest, named: impl FnOnce() -> CountedSeries) {
        let &EndedRequest { key, bytes, micros } = ended;
        let sums = &mut self.series.entry(key).or_insert_with(named).sums;
        sums.requests += 1;
        sums.bytes = sums.bytes.saturating_add(bytes);
        sums.micros = sums.micros.saturating_add(micros);
        let class = &mut sums.classes[usize::from(latency::class(micros))];
        *class = class.saturating_add(1);
    }
}

/// The sums of these labels, or of `others` where there is no room for more; whether it is that.
pub(super) fn find(series: &mut HashMap<Labels, Sums>, labels: Labels) -> (&mut Sums, bool) {
    let is_other = !series.contains_key(&labels) && series.len() >= MAX_SERIES;
    let labels = if is_other { labels.of_others() } else { labels };
    (series.entry(labels).or_default(), is_other)
}
