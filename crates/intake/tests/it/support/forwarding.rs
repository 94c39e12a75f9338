//! A forward of a test's intake, and what it has done.

use std::sync::Arc;

use tidegate_intake::EndpointUrl;
use tidegate_intake::forward::{
    self, Destination, ForwardConfig, ForwardState, Forwards, HttpDestination, HttpProtocol,
};

use super::TestIntake;

/// A forward under the name `test`.
pub fn forward_to(protocol: HttpProtocol, url: EndpointUrl) -> ForwardConfig {
    let to = Destination::Http(HttpDestination { protocol, url, token_file: None });
    ForwardConfig { name: "test".to_owned(), to }
}

/// Forwards under the name `test` from now on.
pub fn forward(intake: &TestIntake, protocol: HttpProtocol, url: EndpointUrl) -> Arc<ForwardState> {
    forwards(intake, forward_to(protocol, url)).states().remove(0)
}

/// Forwards from now on, until others take its place.
pub fn forwards(intake: &TestIntake, config: ForwardConfig) -> Arc<Forwards> {
    let forwards = Arc::new(Forwards::new(vec![config], intake.intake.log()));
    forward::start(&intake.intake, &forwards, None, intake.cores());
    forwards
}

/// How many of these there were.
pub fn count(state: &ForwardState, what: &str) -> u64 {
    state.counts().into_iter().find(|(name, _)| *name == what).unwrap().1
}
