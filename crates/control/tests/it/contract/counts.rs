//! Requests that were counted: added once, told apart as far as there is room, kept as long as is said.

use std::collections::BTreeMap;
use std::thread;

use tidegate_control::{Batch, Control, Counted, Limits, MAX_COUNTED, Period, Span, Sums};

use crate::contract::{Database, Home};

/// A minute's beginning, an hour's and a day's.
const FIRST: u64 = 1_699_920_000;
const DAY: u64 = 86_400;

fn row(labels: &str, requests: u64) -> Counted {
    let classes = vec![(u16::try_from(requests % 7).unwrap(), requests)];
    let sums = Sums { requests, bytes: 10 * requests, micros: 100 * requests, classes };
    Counted { labels: labels.to_owned(), otherwise: "others".to_owned(), sums }
}

fn batch(writer: u64, number: u64, minute: u64, rows: &[Counted]) -> Batch {
    Batch { writer, number, minute, rows: rows.to_vec() }
}

type All = BTreeMap<(u64, String), Sums>;

/// Everything of a span, and the number of the writer's last batch.
fn all(control: &Control, span: Span, writer: u64) -> (All, u64) {
    let period = Period { span, from: 0, to: u64::MAX };
    let add = |all: &mut All, begin, labels: &str, sums: &Sums| {
        assert!(
            all.insert((begin, labels.to_owned()), sums.clone()).is_none(),
            "{begin} {labels} is there twice"
        );
    };
    control.read_counts(period, writer, add).unwrap()
}

fn requests(control: &Control, span: Span) -> u64 {
    all(control, span, 0).0.values().map(|sums| sums.requests).sum()
}

pub(crate) fn a_batch_is_added_once_to_its_minute_hour_and_day(home: &impl Home) {
    let control = home.open(Limits::default());
    assert_eq!(all(&control, Span::Day, 7), (All::new(), 0));
    let put = |writer, number, minute, rows: &[Counted]| {
        control.add_counts(&batch(writer, number, minute, rows), FIRST + 3_600).unwrap()
    };
    let text = "[\"nul\\u0000 and \u{fc}\",\"'\"]";
    assert_eq!(put(7, 3, FIRST, &[row("a", 1), row(text, 5)]).texts, 2);
    // The reply to it was lost, so it is given again; and one that is older comes late.
    put(7, 3, FIRST, &[row("a", 1), row(text, 5)]);
    put(7, 2, FIRST, &[row("a", 1_000)]);
    put(7, 4, FIRST + 60, &[row("a", 10)]);
    put(8, 1, FIRST, &[row("a", 200)]);
    put(u64::MAX >> 1, u64::MAX >> 1, FIRST + 3_600, &[row("b", 3_000)]);
    drop(control);
    let control = home.open(Limits::default());
    let brief = |span| {
        let (all, last) = all(&control, span, 7);
        assert_eq!(last, 4);
        all.into_iter()
            .map(|((begin, labels), sums)| (begin - FIRST, labels, sums.requests))
            .collect::<Vec<_>>()
    };
    let expected = |rows: &[(u64, &str, u64)]| {
        let mut rows: Vec<_> =
            rows.iter().map(|(begin, text, count)| (*begin, (*text).to_owned(), *count)).collect();
        rows.sort();
        rows
    };
    assert_eq!(
        brief(Span::Minute),
        expected(&[(0, "a", 201), (0, text, 5), (60, "a", 10), (3_600, "b", 3_000)])
    );
    assert_eq!(brief(Span::Hour), expected(&[(0, "a", 211), (0, text, 5), (3_600, "b", 3_000)]));
    assert_eq!(brief(Span::Day), expected(&[(0, "a", 211), (0, text, 5), (0, "b", 3_000)]));
    let of_a = &all(&control, Span::Day, 0).0[&(FIRST, "a".to_owned())];
    assert_eq!((of_a.bytes, of_a.micros), (2_110, 21_100));
    assert_eq!(of_a.classes, [(1, 1), (3, 10), (4, 200)]);
    let part = |from, to| {
        let count = |count: &mut u64, _, _: &str, sums: &Sums| *count += sums.requests;
        control.read_counts::<u64>(Period { span: Span::Minute, from, to }, 0, count).unwrap().0
    };
    assert_eq!((part(FIRST + 60, FIRST + 61), part(FIRST + 59, FIRST + 60)), (10, 206));
    assert_eq!((part(FIRST + 3_659, u64::MAX), part(FIRST + 3_660, u64::MAX)), (3_000, 0));
}

pub(crate) fn what_all_nodes_tell_apart_has_a_bound(home: &impl Home) {
    let control = home.open(Limits::default());
    let rows = |prefix: &str, count: usize| {
        (0..count).map(|number| row(&format!("{prefix}{number}"), 2)).collect::<Vec<_>>()
    };
    let first = control.add_counts(&batch(1, 1, FIRST, &rows("a", 700)), FIRST).unwrap();
    assert_eq!((first.without_room, first.texts), (0, 700));
    let second = control.add_counts(&batch(2, 1, FIRST, &rows("b", 700)), FIRST).unwrap();
    assert_eq!((second.without_room, second.texts), (800, MAX_COUNTED + 1));
    // What is there has room, and so has the next minute.
    let third = control.add_counts(&batch(1, 2, FIRST, &rows("a", 700)), FIRST).unwrap();
    assert_eq!((third.without_room, third.texts), (0, MAX_COUNTED + 1));
    let next = control.add_counts(&batch(2, 2, FIRST + 60, &rows("b", 700)), FIRST + 60).unwrap();
    assert_eq!((next.without_room, next.texts), (0, 700));
    for span in Span::ALL {
        assert_eq!(requests(&control, span), 8 * 700, "{span:?}");
    }
    let (day, _) = all(&control, Span::Day, 0);
    assert_eq!((day.len(), day[&(FIRST, "others".to_owned())].requests), (MAX_COUNTED + 1, 1_600));
}

pub(crate) fn spans_are_kept_by_number_up_to_what_is_said(home: &impl Home) {
    let control = home.open(Limits::default());
    let put = |number, minute| control.add_counts(&batch(1, number, minute, &[row("a", 1)]), minute).unwrap();
    for (number, span) in (0..).zip(Span::ALL) {
        let first = FIRST + number * 30 * DAY;
        let begins = || all(&control, span, 0).0.into_keys().map(|(begin, _)| begin).collect::<Vec<_>>();
        for nth in 0..span.kept() + 2 {
            put(1_000 * number + nth + 1, first + nth * span.seconds());
        }
        let expected = (2..span.kept() + 2).map(|nth| first + nth * span.seconds());
        assert_eq!(begins(), expected.collect::<Vec<_>>(), "{span:?}");
    }
}

/// 18 rows of a month, and a start with a clock that is 400 days ahead: the batches that it writes, and no others, are wrong.
pub(crate) fn a_clock_that_jumps_ahead_and_comes_back_takes_nothing_with_it(home: &impl Home) {
    let control = home.open(Limits::default());
    let mut number = 0;
    let mut put = |now: u64| {
        number += 1;
        control.add_counts(&batch(1, number, Span::Minute.begin(now), &[row("a", 1)]), now).unwrap();
    };
    let of = |span| all(&control, span, 0).0.into_keys().map(|(begin, _)| begin).collect::<Vec<_>>();
    let days: Vec<u64> = (0..6).map(|day| FIRST + day * DAY).collect();
    days.iter().for_each(|day| put(*day));
    let before = Span::ALL.map(of);
    assert_eq!(before, [days.clone(), days.clone(), days.clone()]);

    let wrong = FIRST + 400 * DAY;
    put(wrong);
    put(wrong + 60);
    for (span, before) in Span::ALL.into_iter().zip(&before) {
        assert!(of(span).starts_with(before), "{span:?}: {:?}", of(span));
    }

    // Back at the right time all that is written is kept, as much of it as ever.
    let back = FIRST + 6 * DAY;
    (0..130).for_each(|minute| put(back + 60 * minute));
    let minutes = of(Span::Minute);
    let expected: Vec<u64> = (10..130).map(|minute| back + 60 * minute).chain([wrong, wrong + 60]).collect();
    assert_eq!(minutes, expected);
    assert_eq!(of(Span::Day), [days, vec![back, wrong]].concat());

    // Ahead for hours, its minutes are all there is. They take no room of those that come.
    (0..300).for_each(|minute| put(wrong + 60 * minute));
    (0..3).for_each(|minute| put(back + 60 * (130 + minute)));
    let minutes = of(Span::Minute);
    assert_eq!(minutes.iter().filter(|minute| **minute < wrong).count(), 3);
    assert_eq!(minutes.len(), 123);
}

pub(crate) fn nodes_that_count_at_once_lose_nothing(home: &Database<'_>) {
    const EACH: u64 = 20;
    let nodes: Vec<_> = (0..3).map(|_| home.open(Limits::default())).collect();
    thread::scope(|scope| {
        for (writer, node) in (1..).zip(&nodes) {
            scope.spawn(move || {
                for number in 1..=EACH {
                    let rows = [row("a", 1), row(&format!("of {writer}"), 10)];
                    node.add_counts(&batch(writer, number, FIRST + 60 * (number % 3), &rows), FIRST).unwrap();
                }
            });
        }
    });
    for (writer, node) in (1..).zip(&nodes) {
        let (day, last) = all(node, Span::Day, writer);
        let found: Vec<_> = day.iter().map(|((_, labels), sums)| (labels.as_str(), sums.requests)).collect();
        assert_eq!(found, [("a", 3 * EACH), ("of 1", 10 * EACH), ("of 2", 10 * EACH), ("of 3", 10 * EACH)]);
        assert_eq!((requests(node, Span::Minute), last), (33 * EACH, EACH));
    }
}

/// It would otherwise take all nodes' minutes, hours and days with it.
pub(crate) fn a_node_whose_clock_is_years_ahead_forgets_nothing_of_the_others(home: &Database<'_>) {
    let now: u64 = home.server.sql("SELECT extract(epoch FROM now())::bigint").trim().parse().unwrap();
    let (right, ahead) = (home.open(Limits::default()), home.open(Limits::default()));
    right.add_counts(&batch(1, 1, Span::Minute.begin(now), &[row("a", 1)]), now).unwrap();
    let later = now + 10 * 365 * DAY;
    ahead.add_counts(&batch(2, 1, Span::Minute.begin(later), &[row("a", 1)]), later).unwrap();
    assert_eq!(Span::ALL.map(|span| requests(&right, span)), [2, 2, 2]);
}
