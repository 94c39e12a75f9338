//! The table of alerts, by a clock that the tests set.

use serde_json::{Value, json};
use tidegate_wire::metrics::{Kind, LineWriter, Metric};

use super::*;

const NOW: i64 = 1_795_420_800_000;

fn at(seconds: u64) -> Tick {
    Tick(NOW.unsigned_abs() * 1_000_000).plus(seconds * SECOND)
}

fn rules(more: &Value) -> Vec<AlertRule> {
    let mut rule = json!({"name": "cpu-high", "metric": "cpu.usage", "above": 80, "for_seconds": 60,
                          "labels": {"severity": "page"}});
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    vec![AlertRule::read(&rule, "/intake/alert/0").unwrap()]
}

struct Bench {
    alerts: Alerts,
    notices: mpsc::Receiver<Notice>,
}

impl Bench {
    fn new(more: &Value) -> Self {
        let (alerts, notices) = Alerts::new(rules(more));
        Self { alerts, notices }
    }

    /// A line of a host that comes at a time, stating that it is `late` milliseconds old.
    fn line(&self, host: &str, value: f64, seconds: u64, late: i64) {
        let arrival = NOW + i64::try_from(seconds * 1_000).unwrap();
        let mut writer = LineWriter::new("web", arrival, usize::MAX);
        let tags = [("host.name", host)].into_iter();
        let millis = Some(arrival - late);
        writer
            .write(&Metric {
                name: "cpu.usage",
                value: value.into(),
                kind: Kind::Gauge,
                millis,
                tags: tags.clone(),
            })
            .unwrap();
        writer
            .write(&Metric { name: "other", value: 100.0.into(), kind: Kind::Gauge, millis, tags })
            .unwrap();
        let observed = self.alerts.observations(&writer.finish(), arrival);
        self.alerts.observe(observed, at(seconds));
    }

    fn notice(&mut self) -> Value {
        serde_json::to_value(self.notices.try_recv().expect("there is a notice")).unwrap()
    }

    fn counts(&self) -> (u64, u64) {
        let (_, AlertCounts { pending, firing }) = self.alerts.counts()[0];
        (pending, firing)
    }
}

#[test]
fn a_rule_is_pending_then_firing_then_resolved_and_is_told_in_alertmanagers_words() {
    let mut bench = Bench::new(&json!({}));
    bench.line("a", 85.0, 0, 0);
    bench.line("b", 79.0, 0, 0);
    assert_eq!(bench.counts(), (1, 0));
    assert_eq!(bench.alerts.to_json()["alerts"][0]["state"], "pending");
    bench.alerts.advance(at(59));
    assert!(bench.notices.try_recv().is_err());
    bench.alerts.advance(at(60));
    assert_eq!(bench.counts(), (0, 1));
    let fired = bench.notice();
    assert_eq!(
        fired["labels"],
        json!({"alertname": "cpu-high", "metric": "cpu.usage", "client": "web", "host_name": "a", "severity": "page"})
    );
    assert_eq!(fired["annotations"]["summary"], "cpu.usage of web is 85, above 80 for 60 s");
    assert_eq!(fired["startsAt"], "2026-11-23T08:00:00.000Z");
    assert_eq!(fired["endsAt"], "2026-11-23T08:05:00.000Z", "good for four minutes from when it fired");
    let listed = bench.alerts.to_json();
    assert_eq!((&listed["alerts"][0]["state"], &listed["rules"][0]["firing"]), (&json!("firing"), &json!(1)));
    bench.line("a", 80.0, 70, 0);
    let resolved = bench.notice();
    assert_eq!((&resolved["labels"], &resolved["startsAt"]), (&fired["labels"], &fired["startsAt"]));
    assert_eq!(resolved["endsAt"], "2026-11-23T08:01:10.000Z");
    assert_eq!((bench.counts(), bench.notices.try_recv().is_err()), ((0, 0), true));
}

/// The receiver before it has taken them; without this the other one shows nothing for up to a minute.
#[test]
fn another_receiver_is_told_of_what_fires_within_a_second() {
    let mut bench = Bench::new(&json!({}));
    bench.line("a", 85.0, 0, 0);
    bench.alerts.advance(at(60));
    assert_eq!(bench.notice()["labels"]["host_name"], "a");
    bench.line("b", 85.0, 60, 0);
    bench.alerts.advance(at(61));
    assert!(bench.notices.try_recv().is_err());
    let other = EndpointUrl::parse("http://127.0.0.1:9093/api/v2/alerts");
    assert!(bench.alerts.tell_at(other.clone()));
    bench.alerts.advance(at(62));
    assert_eq!(bench.notice()["labels"]["host_name"], "a");
    assert!(!bench.alerts.tell_at(other), "it is the same");
    bench.alerts.advance(at(63));
    assert!(bench.notices.try_recv().is_err(), "once, and nothing of what is pending");
}

#[test]
fn what_fires_is_told_again_each_minute_and_what_is_silent_is_resolved() {
    let mut bench = Bench::new(&json!({"for_seconds": 0}));
    bench.line("a", 85.0, 0, 0);
    let mut told = 0;
    for second in 0..300 {
        bench.alerts.advance(at(second));
        while bench.notices.try_recv().is_ok() {
            told += 1;
        }
    }
    assert_eq!(told, 5, "at 0, 60, 120, 180 and 240 seconds");
    bench.alerts.advance(at(300));
    assert_eq!(bench.notice()["endsAt"], "2026-11-23T08:05:00.000Z");
    assert_eq!(bench.counts(), (0, 0));
}

#[test]
fn other_rules_keep_since_when_a_series_is_beyond_and_end_what_is_beyond_no_more() {
    let mut bench = Bench::new(&json!({}));
    bench.line("a", 85.0, 0, 0);
    bench.line("b", 95.0, 0, 0);
    assert!(!bench.alerts.replace(rules(&json!({})), at(10)), "they are the same");
    // One of the two is not beyond the new threshold, and nobody was told of it.
    assert!(bench.alerts.replace(rules(&json!({"above": 90, "for_seconds": 30})), at(20)));
    assert_eq!((bench.counts(), bench.notices.try_recv().is_err()), ((1, 0), true));
    bench.alerts.advance(at(30));
    let fired = bench.notice();
    assert_eq!((bench.counts(), &fired["startsAt"]), ((0, 1), &json!("2026-11-23T08:00:00.000Z")));
    // A longer time takes nothing back that fires, and other labels are another alert to the receiver.
    let other = rules(&json!({"for_seconds": 600, "labels": {"severity": "mail"}}));
    assert!(bench.alerts.replace(other, at(40)));
    let ended = bench.notice();
    assert_eq!((&ended["labels"], &ended["endsAt"]), (&fired["labels"], &json!("2026-11-23T08:00:40.000Z")));
    bench.alerts.advance(at(41));
    assert_eq!(bench.notice()["labels"]["severity"], "mail");
    // Another metric under the name: what fires is over.
    assert!(bench.alerts.replace(rules(&json!({"metric": "other", "labels": {"severity": "mail"}})), at(50)));
    assert_eq!(bench.notice()["endsAt"], "2026-11-23T08:00:50.000Z");
    assert_eq!(
        (bench.counts(), &bench.alerts.to_json()["resolved"][0]["name"]),
        ((0, 0), &json!("cpu-high"))
    );
    bench.line("a", 1.0, 60, 0);
    assert_eq!(bench.counts(), (1, 0), "it looks at the other metric");
    assert!(bench.alerts.replace(Vec::new(), at(70)));
    assert!(bench.alerts.counts().is_empty());
    bench.line("a", 99.0, 80, 0);
    bench.alerts.advance(at(80));
    assert!(bench.notices.try_recv().is_err(), "what never fired ends in silence");
}

#[test]
fn a_line_that_came_under_another_rule_begins_nothing() {
    let bench = Bench::new(&json!({}));
    let mut writer = LineWriter::new("web", NOW, usize::MAX);
    let (name, value, tags) = ("cpu.usage", 85.0.into(), std::iter::empty());
    writer.write(&Metric { name, value, kind: Kind::Gauge, millis: None, tags }).unwrap();
    let observed = bench.alerts.observations(&writer.finish(), NOW);
    assert_eq!(observed.len(), 1);
    bench.alerts.replace(rules(&json!({"metric": "other"})), at(0));
    bench.alerts.observe(observed, at(0));
    assert_eq!(bench.counts(), (0, 0));
}

#[test]
fn old_lines_wake_nobody_and_tags_tell_series_apart() {
    let bench = Bench::new(&json!({"tags": {"host.name": "a"}}));
    bench.line("a", 99.0, 0, 301_000);
    bench.line("b", 99.0, 0, 0);
    assert_eq!(bench.counts(), (0, 0));
    bench.line("a", 99.0, 0, 300_000);
    assert_eq!(bench.counts(), (1, 0));
}

#[test]
fn fault_73_the_table_and_the_queue_are_bounded_and_say_so() {
    let bench = Bench::new(&json!({"for_seconds": 0}));
    for host in 0..MAX_ACTIVE + 5 {
        bench.line(&host.to_string(), 85.0, 0, 0);
    }
    assert_eq!(bench.counts(), (0, MAX_ACTIVE as u64));
    assert_eq!(bench.alerts.untracked(), 5);
    assert_eq!(bench.alerts.notices()[3], ("dropped", (MAX_ACTIVE - MAX_NOTICES) as u64));
    bench.line("0", 1.0, 1, 0);
    bench.line("new", 85.0, 1, 0);
    assert_eq!((bench.counts(), bench.alerts.untracked()), ((0, MAX_ACTIVE as u64), 5));
}
