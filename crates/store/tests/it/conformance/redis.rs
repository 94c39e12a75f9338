//! Redis under the conformance suite, deciding by the caller's clock.

use std::time::Duration;

use tidegate_store::Counters;
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::{DecidingClock, RedisConfig};
use tidegate_store::shared::Shared;
use tidegate_testkit::redis::RedisServer;

use crate::conformance::suite;

/// The store on this server.
pub(super) fn store(server: &RedisServer) -> Counters {
    let mut config = RedisConfig::single("127.0.0.1", server.port);
    config.clock = DecidingClock::Caller;
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(60);
    Counters::Shared(Shared::Redis(Redis::start(config)))
}

macro_rules! cases {
    ($($case:ident)+) => {$(
        #[tokio::test]
        async fn $case() {
            let server = RedisServer::start(&[]);
            suite::$case(&store(&server)).await;
        }
    )+};
}

every_case!(cases);
