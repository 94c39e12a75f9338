//! Redis under the conformance suite, deciding by the caller's clock.

use std::time::Duration;

use tidegate_algorithms::time::Now;
use tidegate_store::Counters;
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::{DecidingClock, RedisConfig};
use tidegate_store::shared::Shared;
use tidegate_testkit::redis::RedisServer;

use crate::{Subject, suite};

struct InRedis(Counters);

impl InRedis {
    fn new(port: u16) -> Self {
        let mut config = RedisConfig::single("127.0.0.1", port);
        config.clock = DecidingClock::Caller;
        config.response_timeout = Duration::from_secs(5);
        Self(Counters::Shared(Shared::Redis(Redis::start(config))))
    }
}

impl Subject for InRedis {
    fn counters(&self) -> &Counters {
        &self.0
    }

    async fn at(&self, now: Now) -> Now {
        now
    }
}

macro_rules! cases {
    ($($case:ident),+ $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let server = RedisServer::start(&[]);
            suite::$case(&InRedis::new(server.port)).await;
        }
    )+};
}

cases! {
    admits_the_quota_and_again_after_the_promised_wait,
    fault_16_all_or_nothing,
    a_denial_shows_what_remains_without_it,
    shadow_is_charged_and_never_denies,
    a_peek_spends_nothing,
    a_cost_above_the_quota_is_never_admissible,
    a_quota_of_zero_denies_everything,
    a_refund_restores,
    permits_are_held_renewed_released_and_lapse,
    charges_of_one_key_are_one_spend,
    a_request_without_limits_is_allowed,
    a_changed_limit_keeps_what_was_used,
    fault_08_a_clock_that_jumps_back_neither_locks_out_nor_refills,
    fault_13_keys_are_opaque_bytes,
}
