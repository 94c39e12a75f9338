//! Requests are neither lost nor counted twice, whatever the span and wherever the counts are, and a question about them
//! is answered or refused.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tempfile::TempDir;
use tidegate_control::{Control, Limits};

use super::*;

const MINUTE: u64 = 60;

fn at(second: u64) -> Wall {
    Wall(second * 1_000_000_000)
}

fn labels(route: &str, status: u16) -> Labels {
    Labels { route: Some(route.into()), status, ..Labels::default() }
}

/// A request with these labels ends on a core. Requests with the same labels have the same numbers.
fn ended(analytics: &Analytics, core: usize, labels: Labels, bytes: u64, micros: u64, now: Wall) {
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    let key = SeriesKey { route: hasher.finish(), status: labels.status, ..SeriesKey::default() };
    analytics.count(core, &EndedRequest { key, bytes, micros }, now, || CountedSeries::new(labels, None));
}

/// Counts, and the store that they go to.
struct Kept {
    analytics: Analytics,
    control: Control,
    _folder: TempDir,
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path(), Limits::default()).unwrap();
        Self { analytics: Analytics::default(), control, _folder: folder }
    }

    fn store(&self, now: u64) {
        while let Some(batch) = self.analytics.seal(u64::MAX, None) {
            self.analytics.write(&self.control, &batch, at(now)).unwrap();
        }
    }

    fn ask(&self, now: u64, parameters: &[(&str, &str)]) -> serde_json::Value {
        self.analytics.answer(&self.control, &query(now, parameters).expect("a good question")).json()
    }

    /// How many rows an answer has, and their requests.
    fn total(&self, now: u64, parameters: &[(&str, &str)]) -> (usize, u64) {
        let answer = self.ask(now, parameters);
        let rows = answer["rows"].as_array().expect("rows");
        (rows.len(), rows.iter().map(|row| row["requests"].as_u64().expect("a number")).sum())
    }
}

fn query(now: u64, parameters: &[(&str, &str)]) -> Result<AnalyticsQuery, QueryMistake> {
    let owned: Vec<(String, String)> =
        parameters.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    AnalyticsQuery::read(&owned, at(now))
}

#[test]
fn minutes_become_hours_and_days_and_nothing_is_counted_twice_or_lost() {
    const EACH: u64 = 10 * MINUTE;
    let kept = Kept::new();
    let first = 1_763_856_000;
    // Three days with a request each ten minutes.
    for number in 0..432 {
        let (status, second) = (if number % 10 == 0 { 429 } else { 200 }, first + number * EACH);
        ended(&kept.analytics, 0, labels("a", status), 10, 1_000, at(second));
        if number % 50 == 0 {
            kept.store(second);
        }
    }
    let now = first + 3 * 86_400 - 1;
    for is_stored in [false, true] {
        if is_stored {
            kept.store(now);
            assert_eq!(kept.analytics.stats().waiting, 0);
        }
        let total = |parameters: &[(&str, &str)]| kept.total(now, parameters);
        assert_eq!(total(&[]), (1, 6), "{is_stored}");
        assert_eq!(total(&[("step", "hour"), ("from", "1970-01-01")]), (72, 432));
        assert_eq!(total(&[("step", "day"), ("from", "1970-01-01"), ("by", "status")]), (6, 432));
        assert_eq!(total(&[("from", "1970-01-01")]), (1, 432));
        let whole = &kept.ask(now, &[("from", "1970-01-01")])["rows"][0];
        assert_eq!((&whole["succeeded"], &whole["rate_limited"]), (&388.into(), &44.into()));
        assert_eq!((&whole["mean_ms"], &whole["bytes"]), (&1.0.into(), &4_320.into()));
    }
    let resolution = |from: &str| kept.ask(now, &[("from", from)])["resolution"].clone();
    let [minute, hour, day] = ["2025-11-25T22:30:00Z", "2025-11-23", "2025-11-01"].map(resolution);
    assert_eq!([minute, hour, day], ["minute", "hour", "day"]);
    // A clock that goes back has its minute again.
    ended(&kept.analytics, 0, labels("a", 200), 0, 1, at(first));
    assert_eq!(kept.total(now, &[("from", "1970-01-01")]).1, 433);
}

/// The store has taken a batch, and its reply was lost.
#[test]
fn a_batch_whose_fate_is_not_known_is_counted_once() {
    let kept = Kept::new();
    let now = 1_763_856_000;
    let count = || ended(&kept.analytics, 0, labels("a", 200), 1, 1_000, at(now));
    count();
    let sealed = kept.analytics.seal(u64::MAX, None).unwrap();
    count();
    assert_eq!(kept.total(now, &[]), (1, 2), "in no store");
    kept.analytics.write(&kept.control, &sealed, at(now)).unwrap();
    kept.analytics.counting().batches.push_front(sealed);
    assert_eq!(kept.total(now, &[]), (1, 2), "in the store, and still waiting");
    kept.store(now);
    assert_eq!((kept.total(now, &[]), kept.analytics.stats().waiting), ((1, 2), 0));
    // Another process on the same store has numbers of its own.
    let next = Kept { analytics: Analytics::default(), control: kept.control.clone(), _folder: kept._folder };
    ended(&next.analytics, 0, labels("a", 200), 1, 1_000, at(now));
    assert_eq!(next.total(now, &[]), (1, 3));
    next.store(now);
    assert_eq!(next.total(now, &[]), (1, 3));
}

#[test]
fn what_there_is_no_room_for_is_counted_as_others() {
    let kept = Kept::new();
    let count = |from: usize, to: usize| {
        for number in from..to {
            ended(&kept.analytics, 0, labels(&format!("r{number}"), 200), 0, 1, at(1_000_000));
        }
    };
    let stats = || {
        let AnalyticsStats { series, others, .. } = kept.analytics.stats();
        (series, others)
    };
    count(0, MAX_SERIES + 50);
    assert_eq!(stats(), (MAX_SERIES + 1, 50));
    kept.store(1_000_000);
    assert_eq!(stats(), (MAX_SERIES + 1, 50));
    // In the next batch of the same minute there is room for them, and in the store there is none.
    count(MAX_SERIES - 10, MAX_SERIES + 50);
    kept.store(1_000_000);
    assert_eq!(stats(), (MAX_SERIES + 1, 100));
    let of_one = kept.ask(1_000_000, &[("by", "route"), ("route", "r7")]);
    assert_eq!(of_one["rows"].as_array().map(Vec::len), Some(1));
    let all = kept.ask(1_000_000, &[("by", "route")]);
    let others = all["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["route"] == "others"));
    assert_eq!(others.expect("others")["requests"], 100);
}

#[test]
fn what_waits_for_a_store_that_is_away_has_a_bound_and_what_is_lost_is_counted() {
    let kept = Kept::new();
    let first = 1_763_856_000;
    let minute = |number: u64| ended(&kept.analytics, 0, labels("a", 200), 0, 1, at(first + number * MINUTE));
    minute(0);
    // The first is being written all the while.
    let sealed = kept.analytics.seal(u64::MAX, None).unwrap();
    (1..MAX_WAITING as u64 + 20).for_each(minute);
    let stats = kept.analytics.stats();
    assert_eq!((stats.waiting, stats.lost), (MAX_WAITING as u64, 20));
    kept.analytics.write(&kept.control, &sealed, at(first)).unwrap();
    kept.store(first + 20 * MINUTE);
    let now = first + (MAX_WAITING as u64 + 20) * MINUTE;
    assert_eq!(kept.total(now, &[("from", "1970-01-01")]), (1, MAX_WAITING as u64));
}

#[test]
fn a_table_is_quoted_and_a_bad_question_is_refused() {
    let kept = Kept::new();
    ended(&kept.analytics, 0, labels("=a,\"b\"", 503), 1, 2_000, at(1_000_000));
    kept.store(1_000_000);
    let question = query(1_000_000, &[("by", "status,route"), ("format", "csv")]).expect("good");
    let csv = kept.analytics.answer(&kept.control, &question).csv();
    let mut lines = csv.split("\r\n");
    let head = "route,status,requests,succeeded,rate_limited,client_errors,failed,bytes,mean_ms,p50_ms,p95_ms,p99_ms";
    assert_eq!(lines.next(), Some(head));
    let row = lines.next().expect("a row");
    assert!(row.starts_with("\"'=a,\"\"b\"\"\",503,1,0,0,0,1,1,2.0,"), "{row}");
    for (name, text) in
        [("by", "client"), ("step", "week"), ("from", "yesterday"), ("format", "xml"), ("limit", "1")]
    {
        assert_eq!(query(0, &[(name, text)]).expect_err("refused").parameter, name);
    }
    assert!(query(0, &[("by", "key"), ("by", "route")]).is_err());
    let (from, to) = (("from", "1970-01-03"), ("to", "1970-01-01"));
    for backwards in [&[from, to][..], &[to, from], &[to]] {
        let mistake = query(1_000_000, backwards).expect_err("refused");
        let expected = ("to", "is \"1970-01-01\", which is before from");
        assert_eq!((&*mistake.parameter, &*mistake.problem), expected, "{backwards:?}");
    }
    assert!(query(1_000_000, &[from, ("to", "1970-01-03")]).is_ok());
    // A clock of the client that is ahead is no mistake.
    assert!(query(1_000_000, &[("from", "2026-11-23")]).is_ok());
}

/// The report's request: between two dates, both of them whole, and all together beside each service.
#[test]
fn dates_are_whole_days_and_the_total_is_of_all_rows() {
    let kept = Kept::new();
    let day = |number: u64| number * 86_400;
    for (at_second, status) in
        [(day(10) - 1, 500), (day(10), 200), (day(11) + 43_200, 429), (day(12) - 1, 200), (day(12), 500)]
    {
        ended(&kept.analytics, 0, labels("a", status), 10, 4_000, at(at_second));
    }
    let question = [("from", "1970-01-11"), ("to", "1970-01-12"), ("by", "status")];
    for is_stored in [false, true] {
        if is_stored {
            kept.store(day(13));
        }
        let answer = kept.ask(day(13), &question);
        let total = &answer["total"];
        assert_eq!(
            [&total["requests"], &total["succeeded"], &total["rate_limited"], &total["failed"]],
            [3, 2, 1, 0],
            "{answer}"
        );
        assert_eq!((&total["mean_ms"], &answer["to"]), (&4.0.into(), &"1970-01-13T00:00:00Z".into()));
        assert_eq!(answer["rows"].as_array().map(Vec::len), Some(2));
    }
    let instant = kept.ask(day(13), &[("from", "1970-01-11"), ("to", "1970-01-12T00:00:00Z")]);
    assert_eq!(instant["total"]["requests"], 1);
}

/// Threads count in tables of their own, and whoever asks meanwhile sees each request at most once.
#[test]
fn what_threads_count_at_once_is_all_there_and_never_more() {
    const EACH: u64 = 5_000;
    let kept = Kept::new();
    let asked = || kept.ask(1_000_000, &[])["total"]["requests"].as_u64().expect("a number");
    std::thread::scope(|scope| {
        for thread in 0..2 * SHARDS as u64 {
            let analytics = &kept.analytics;
            scope.spawn(move || {
                for number in 0..EACH {
                    // The clock of one request may be read before that of another, and noted after it.
                    let second = 1_000_000 - (thread + number) % 3 * MINUTE;
                    let labels = labels(&format!("r{}", number % 7), 200);
                    ended(analytics, thread as usize, labels, 1, 1_000, at(second));
                }
            });
        }
        let mut last = 0;
        for _ in 0..20 {
            kept.store(1_000_000);
            let now = asked();
            assert!((last..=2 * SHARDS as u64 * EACH).contains(&now), "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(asked(), 2 * SHARDS as u64 * EACH);
    kept.store(1_000_000);
    assert_eq!((asked(), kept.analytics.stats().lost), (2 * SHARDS as u64 * EACH, 0));
}

/// The store is on a disk that is not written for nothing.
#[test]
fn a_minute_that_grows_is_not_written_and_one_that_is_over_is_written_once() {
    let kept = Kept::new();
    let first = 1_763_856_000;
    let one = |second: u64| ended(&kept.analytics, 0, labels("a", 200), 0, 1, at(second));
    assert!(kept.analytics.seal(u64::MAX, Some(first)).is_none(), "an idle gateway has nothing to write");
    (0..MINUTE).for_each(|second| one(first + second));
    assert!(kept.analytics.seal(u64::MAX, Some(first)).is_none(), "its minute grows");
    one(first + MINUTE);
    let over = kept.analytics.seal(u64::MAX, Some(first + MINUTE)).expect("the minute that is over");
    assert_eq!((over.minute, over.requests), (first, MINUTE));
    kept.analytics.write(&kept.control, &over, at(first + MINUTE)).unwrap();
    assert!(kept.analytics.seal(u64::MAX, Some(first + MINUTE)).is_none(), "the next one grows");
    assert_eq!(kept.total(first + MINUTE, &[]), (1, MINUTE + 1));
}

/// An edited route has another number, and a server that came back another upstream.
#[test]
fn what_has_other_numbers_under_the_same_names_is_one_row() {
    let kept = Kept::new();
    for number in 1..=3 {
        let key = SeriesKey { route: number, status: 200, ..SeriesKey::default() };
        let request = EndedRequest { key, bytes: 1, micros: 1_000 };
        let named = || CountedSeries::new(labels("a", 200), None);
        kept.analytics.count(0, &request, at(1_000_000), named);
    }
    assert_eq!(kept.total(1_000_000, &[("by", "route")]), (1, 3));
    assert_eq!(kept.analytics.stats().series, 1);
}
