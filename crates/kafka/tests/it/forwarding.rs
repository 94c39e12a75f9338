//! A broker that is killed, and one that refuses a line.

use std::sync::Arc;

use serde_json::json;
use tidegate_intake::PartitionBy;
use tidegate_intake::forward::{self, Destination, ForwardConfig, ForwardState, Forwards, KafkaTopic};
use tidegate_kafka::KafkaTopics;
use tidegate_testkit::kafka::Kafka;
use tidegate_testkit::series::{BATCH_LINES, batch, check};

use crate::support::forwarding::count;
use crate::support::{Setup, TestIntake};
use crate::until;

/// No more is sent while so many lines wait.
const MOST_WAITING: u64 = 10_000;

/// An intake of two partitions that forwards to a topic.
fn start(kafka: &Kafka, topic: &str) -> (TestIntake, Arc<ForwardState>) {
    let intake = TestIntake::start(partitioned());
    let state = forward(&intake, kafka.address(), topic);
    (intake, state)
}

/// An intake of two partitions.
pub(crate) fn partitioned() -> Setup {
    let mut setup = Setup { log: Box::new(|settings| settings.partitions = 2), ..Setup::default() };
    setup.settings.partition_by = PartitionBy::Series;
    setup
}

/// Forwards to a topic from now on.
pub(crate) fn forward(intake: &TestIntake, broker: String, topic: &str) -> Arc<ForwardState> {
    let to = Destination::Kafka(KafkaTopic { servers: vec![broker], name: topic.to_owned() });
    let config = ForwardConfig { name: "test".to_owned(), to };
    let forwards = Arc::new(Forwards::new(vec![config], intake.intake.log()));
    forward::start(&intake.intake, &forwards, Some(&KafkaTopics), intake.cores());
    forwards.states().remove(0)
}

/// Sends the batch with this number; all of it is on the disk then.
fn post(intake: &TestIntake, number: u64) {
    assert_eq!(intake.post("/metrics", batch(number).as_bytes()).status, 200);
}

#[test]
fn fault_71_kafka_killed_and_started_again_under_load_has_every_line_in_order() {
    let mut kafka = Kafka::start();
    kafka.create_topic("lines", 2, &[]);
    let (intake, state) = start(&kafka, "lines");
    let mut batches = 0;
    for _ in 0..2 {
        let (delivered, failed) = (count(&state, "delivered"), count(&state, "failed_tries"));
        let mut send_until = |what: &str, is_so: &dyn Fn() -> bool| {
            until(what, || {
                if state.waiting() < MOST_WAITING {
                    post(&intake, batches);
                    batches += 1;
                }
                is_so()
            });
        };
        send_until("lines are delivered", &|| {
            count(&state, "delivered") > delivered + 1_000 && state.waiting() > 0
        });
        kafka.kill();
        send_until("the outage is seen", &|| count(&state, "failed_tries") > failed);
        send_until("lines wait", &|| state.waiting() > MOST_WAITING / 2);
        kafka.start_again();
    }
    let again = check(kafka.read("lines"), batches);
    until("nothing waits", || state.waiting() == 0);
    assert_eq!(count(&state, "delivered"), batches * BATCH_LINES);
    assert_eq!((count(&state, "skipped"), count(&state, "missing")), (0, 0));
    println!("{batches} batches of {BATCH_LINES} lines; {again} lines came again");
}

#[test]
fn fault_71_a_line_that_kafka_refuses_for_good_is_skipped_alone() {
    let kafka = Kafka::start();
    // So that a batch is refused as a whole, and the lines of it are found to be good.
    kafka.create_topic("small", 1, &["max.message.bytes=2000"]);
    let (intake, state) = start(&kafka, "small");
    post(&intake, 0);
    // Digits without a pattern, which no compression makes much smaller.
    let digits: String =
        (1..600_u64).map(|number| (number * number * 2_654_435_761 % 99_991).to_string()).collect();
    let long = json!({"metrics": [{"name": "long", "value": 1, "tags": {"digits": digits}}]});
    assert_eq!(intake.post("/metrics", long.to_string().as_bytes()).status, 200);
    post(&intake, 1);
    check(kafka.read("small"), 2);
    until("nothing waits", || state.waiting() == 0);
    assert_eq!(count(&state, "delivered"), 2 * BATCH_LINES);
    assert_eq!((count(&state, "skipped"), count(&state, "missing")), (1, 0));
}
