//! A forward of a test's intake, and what it has done.

use std::sync::Arc;

use tidegate_intake::EndpointUrl;
use tidegate_intake::forward::{
    self, Destination, ForwardConfig, ForwardState, HttpDestination, HttpProtocol,
};
use tidegate_intake::limits::Unlimited;

use super::TestIntake;

/// Forwards under the name `test` from now on.
pub fn forward(
    intake: &TestIntake<Unlimited>,
    protocol: HttpProtocol,
    url: EndpointUrl,
) -> Arc<ForwardState> {
    let to = Destination::Http(HttpDestination { protocol, url, token_file: None });
    let config = ForwardConfig { name: "test".to_owned(), to };
    let state = Arc::new(ForwardState::new(&config, intake.intake.log()));
    forward::start(&intake.intake, &[(config, Arc::clone(&state))], None, intake.cores());
    state
}

/// How many of these there were.
pub fn count(state: &ForwardState, what: &str) -> u64 {
    state.counts().into_iter().find(|(name, _)| *name == what).unwrap().1
}
