//! Valkey under the conformance suite: the same store, on another server.

use tidegate_testkit::not_tested;
use tidegate_testkit::redis::RedisServer;

use crate::conformance::redis::store;
use crate::conformance::suite;

macro_rules! cases {
    ($($case:ident)+) => {$(
        #[tokio::test]
        async fn $case() {
            let Some(server) = RedisServer::start_valkey() else {
                return not_tested(concat!("valkey::", stringify!($case)), "no valkey-server in .venv: `make setup`");
            };
            suite::$case(&store(&server)).await;
        }
    )+};
}

every_case!(cases);
