//! PostgreSQL under the conformance suite, deciding by the caller's clock.

use std::time::Duration;

use tidegate_store::Counters;
use tidegate_store::postgres::{Postgres, PostgresConfig};
use tidegate_store::shared::Shared;
use tidegate_testkit::postgres::PostgresServer;

use crate::conformance::suite;

/// All cases on one server, since starting one takes a second; each has keys of its own.
#[tokio::test]
async fn every_case() {
    let server = PostgresServer::start(&[]);
    let mut config = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
    config.callers_clock = true;
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(60);
    let store = Counters::Shared(Shared::Postgres(Postgres::start(config)));
    macro_rules! cases {
        ($($case:ident)+) => { $(suite::$case(&store).await;)+ };
    }
    every_case!(cases);
}
