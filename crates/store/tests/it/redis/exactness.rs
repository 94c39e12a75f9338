//! Fault 18 across nodes: what several nodes admit together equals the limit.

use std::sync::Arc;

use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots,
};
use tidegate_algorithms::time::SECOND;
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::{Answer, Counters, Intent};
use tidegate_testkit::not_tested;
use tidegate_testkit::redis::RedisServer;

use crate::redis::node::{Clock, bare, charge, patient};

const LIMIT: u64 = 1_000;
const REQUESTS: u64 = 5_000;

/// Units admitted when several nodes ask for the same key at once.
pub(crate) async fn admitted(nodes: &[Arc<Counters>], limit: &Limit) -> u64 {
    let clock = Clock::start();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let node = Arc::clone(&nodes[usize::try_from(number).expect("small") % nodes.len()]);
        let limit = limit.clone();
        tasks.spawn(async move {
            let mut answer = Answer::default();
            let charges = [charge(&limit, b"hot", 1)];
            let intent = Intent::Spend(PermitId(number));
            node.decide(clock.now(), &charges, intent, &mut answer).await.expect("redis answers");
            u64::from(answer.allowed)
        });
    }
    tasks.join_all().await.iter().sum()
}

/// Every algorithm, with periods so long that nothing comes back during a test.
pub(crate) fn every_limit() -> Vec<Limit> {
    let bucket = Bucket::new(LIMIT, LIMIT, 90 * 86_400 * SECOND);
    vec![
        Limit::TokenBucket(bucket),
        Limit::LeakyBucket(bucket),
        Limit::FixedWindow(FixedWindow { limit: LIMIT, seconds: 90 * 86_400 }),
        Limit::SlidingLog(SlidingLog { limit: LIMIT, window: 3_600 * SECOND }),
        Limit::SlidingCounter(SlidingCounter { limit: LIMIT, seconds: 90 * 86_400 }),
        Limit::Concurrency(Slots { limit: LIMIT, lease: 3_600 * SECOND }),
        Limit::Calendar(Calendar { limit: LIMIT, period: Period::Month, zone: jiff::tz::TimeZone::UTC }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_nodes_one_key() {
    admit_the_limit(&RedisServer::start(&[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_nodes_one_key_on_valkey() {
    let Some(server) = RedisServer::start_valkey() else {
        return not_tested(
            "fault_18_three_nodes_one_key_on_valkey",
            "no valkey-server in .venv: `make setup`",
        );
    };
    admit_the_limit(&server).await;
}

/// Three nodes, and every limit in turn.
async fn admit_the_limit(server: &RedisServer) {
    let config = || patient(RedisConfig::single("127.0.0.1", server.port));
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(bare(config()))).collect();
    for limit in every_limit() {
        assert_eq!(admitted(&nodes, &limit).await, LIMIT, "{limit:?}");
        server.command(&["FLUSHALL"]);
    }
}
