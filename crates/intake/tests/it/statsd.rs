//! StatsD over UDP and TCP, by its own client and by bytes.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::{Setup, TestIntake, eventually};
use serde_json::{Value, json};
use tidegate_intake::counters::{Counters, Leftover, Protocol};
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, LimitsAnswer, Ruling, Unlimited};
use tidegate_intake::statsd::{Statsd, StatsdCounters};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::stats::Stats;

struct TestStatsd {
    intake: TestIntake,
    address: SocketAddr,
    counters: Arc<StatsdCounters>,
}

impl TestStatsd {
    fn start(limits: impl for<'b> Limits<LimitedBatch<'b>>) -> Self {
        let intake = TestIntake::start(Setup::limited(limits));
        let count = NonZeroUsize::new(1).unwrap();
        let gate = Gate {
            permits: Permits::new(100),
            buffers: Buffers::new(1 << 20),
            drain: intake.drain.clone(),
            stats: Arc::new(Stats::new::<&str>(1, &[])),
        };
        let listeners = Listeners::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap(), count)).unwrap();
        let statsd = Statsd::bind(Arc::clone(&intake.intake), listeners, Vec::new(), gate).unwrap();
        let (address, counters) = (statsd.address(), statsd.counters());
        statsd.start(intake.cores());
        Self { intake, address, counters }
    }

    fn count(&self) -> &Counters {
        self.intake.intake.counters()
    }

    fn lines(&self, count: usize) -> Vec<Value> {
        eventually("lines are kept", || Some(self.intake.kept()).filter(|lines| lines.len() >= count))
    }

    fn datagram(&self, bytes: &[u8]) {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(bytes, self.address).unwrap();
    }
}

fn check_client(kind: &str) {
    let statsd = TestStatsd::start(Unlimited);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    let mut command = Command::new(python);
    command
        .arg(root.join("tests/it/senders/statsd_client.py"))
        .args([kind, &statsd.address.port().to_string()]);
    let ran = command.output().expect("the Python packages are there: run `make setup`");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = statsd.lines(8);
    let values = |name: &str| -> Vec<f64> {
        lines.iter().filter(|line| line["name"] == name).map(|line| line["value"].as_f64().unwrap()).collect()
    };
    assert_eq!(values("shop.orders"), [3.0, -1.0]);
    assert_eq!(values("shop.queue"), [10.0, 6.0, 11.0]);
    assert_eq!(values("shop.wait"), [320.0, 5.5]);
    assert_eq!(values("shop.hits"), [2.0]);
    assert_eq!(lines.len(), 8, "a set has no line");
    let orders = lines.iter().find(|line| line["name"] == "shop.orders").unwrap();
    assert_eq!((&orders["type"], &orders["tags"]), (&json!("counter"), &json!({"temporality": "delta"})));
    assert_eq!(orders["client"], "127.0.0.1");
    assert_eq!((statsd.count().leftovers(Leftover::Set), statsd.count().metrics(Protocol::Statsd)), (1, 8));
}

#[test]
fn the_python_client_sends_over_udp() {
    check_client("udp");
}

#[test]
fn the_python_client_sends_over_tcp() {
    check_client("tcp");
}

#[test]
fn lines_that_are_none_are_counted_and_the_others_kept() {
    let statsd = TestStatsd::start(Unlimited);
    statsd.datagram(b"good:1|c|#a:b\n\xff:1|c\nbad\nother:2|g");
    let lines = statsd.lines(2);
    assert_eq!(
        (&lines[0]["name"], &lines[0]["tags"]["a"], &lines[1]["name"]),
        (&json!("good"), &json!("b"), &json!("other"))
    );
    assert_eq!(statsd.count().rejected(), 2);
}

/// What Datadog's datagrams and other dialects may have is kept, or counted.
#[test]
fn tags_of_every_dialect_are_kept_and_parts_of_later_versions_counted() {
    let statsd = TestStatsd::start(Unlimited);
    statsd.datagram(b"a:1|c|#env:p,env:p,x:2,x:1\nb,host=x:1|g\nc;host=x:1|g\nd:1|c|#temporality:cumulative\ne:1|c|new:1|T1795420800");
    let lines = statsd.lines(5);
    let tags: Vec<&Value> = lines.iter().map(|line| &line["tags"]).collect();
    assert_eq!(
        tags,
        [
            &json!({"env": "p", "x": "1,2", "temporality": "delta"}),
            &json!({"host": "x"}),
            &json!({"host": "x"}),
            &json!({"exported_temporality": "cumulative", "temporality": "delta"}),
            &json!({"temporality": "delta"}),
        ]
    );
    assert_eq!(lines[4]["timestamp"], "2026-11-23T08:00:00.000Z");
    eventually("the part is counted", || {
        (statsd.count().leftovers(Leftover::UnknownPart) == 1).then_some(())
    });
    assert_eq!(statsd.count().rejected(), 0);
}

#[test]
fn the_rate_of_a_statsd_counter_is_what_was_counted() {
    let statsd = TestStatsd::start(Unlimited);
    for _ in 0..10 {
        statsd.datagram(b"hits:3|c");
    }
    statsd.lines(10);
    let answer = statsd.intake.get("/v1/intake/query?name=hits&last=1m&step=1m&agg=rate", &[]).json();
    let rates = answer["points"].as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap());
    assert!((rates.sum::<f64>() * 60.0 - 30.0).abs() < 1e-6, "{answer}");
}

#[test]
fn a_line_may_come_in_pieces_and_the_last_one_needs_no_line_feed() {
    let statsd = TestStatsd::start(Unlimited);
    let mut stream = TcpStream::connect(statsd.address).unwrap();
    for piece in ["a:1|c\nb", ":2|c\n", "c:3|c"] {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    drop(stream);
    let values: Vec<f64> = statsd.lines(3).iter().map(|line| line["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [1.0, 2.0, 3.0]);
}

#[test]
fn a_line_without_end_closes_its_connection_and_nothing_else() {
    let statsd = TestStatsd::start(Unlimited);
    let mut stream = TcpStream::connect(statsd.address).unwrap();
    let refused = eventually("the connection is closed", || stream.write_all(&[b'x'; 4_096]).err());
    assert!(matches!(refused.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe));
    assert_eq!(statsd.count().rejected(), 1);
    statsd.datagram(b"a:1|c");
    assert_eq!(statsd.lines(1).len(), 1);
}

/// A limit that denies everything.
#[derive(Debug)]
struct Closed;

impl<'b> Limits<LimitedBatch<'b>> for Closed {
    fn charge<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _batch: &'a LimitedBatch<'b>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            Ruling { denial: Some(Denial::Quota { policies: Vec::new() }), ..Ruling::default() }
        })
    }
}

#[test]
fn what_a_limit_refuses_is_counted_as_lost() {
    let statsd = TestStatsd::start(Closed);
    statsd.datagram(b"a:1|c\nb:1|c");
    eventually("both are counted", || (statsd.counters.lost() == 2).then_some(()));
    assert_eq!(statsd.intake.lines(), Vec::<Value>::new());
}
