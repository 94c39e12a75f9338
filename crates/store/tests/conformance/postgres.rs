//! PostgreSQL under the conformance suite, deciding by the caller's clock.

use std::time::Duration;

use tidegate_algorithms::time::Now;
use tidegate_store::Counters;
use tidegate_store::postgres::{Postgres, PostgresConfig};
use tidegate_store::shared::Shared;
use tidegate_testkit::postgres::PostgresServer;

use crate::{Subject, suite};

struct InPostgres(Counters);

impl Subject for InPostgres {
    fn counters(&self) -> &Counters {
        &self.0
    }

    async fn at(&self, now: Now) -> Now {
        now
    }
}

/// All cases on one server, since starting one takes a second; each has keys of its own.
#[tokio::test]
async fn every_case() {
    let server = PostgresServer::start(&[]);
    let mut config = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
    config.callers_clock = true;
    config.response_timeout = Duration::from_secs(10);
    config.connect_timeout = Duration::from_secs(10);
    let subject = InPostgres(Counters::Shared(Shared::Postgres(Postgres::start(config))));
    suite::admits_the_quota_and_again_after_the_promised_wait(&subject).await;
    suite::fault_16_all_or_nothing(&subject).await;
    suite::a_denial_shows_what_remains_without_it(&subject).await;
    suite::shadow_is_charged_and_never_denies(&subject).await;
    suite::a_peek_spends_nothing(&subject).await;
    suite::a_cost_above_the_quota_is_never_admissible(&subject).await;
    suite::a_quota_of_zero_denies_everything(&subject).await;
    suite::a_refund_restores(&subject).await;
    suite::permits_are_held_renewed_released_and_lapse(&subject).await;
    suite::charges_of_one_key_are_one_spend(&subject).await;
    suite::a_request_without_limits_is_allowed(&subject).await;
    suite::a_changed_limit_keeps_what_was_used(&subject).await;
    suite::fault_08_a_clock_that_jumps_back_neither_locks_out_nor_refills(&subject).await;
    suite::fault_13_keys_are_opaque_bytes(&subject).await;
}
