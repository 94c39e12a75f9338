//! Any bytes give a body of the decision API or an error that names its field, within the stated bounds.

use tidegate_wire::bodies::{
    ConfigureBody, ConfigureClientBody, DecisionBodies, MAX_BATCH, MAX_REQUEST_ATTRIBUTES, RateLimitBody,
    read, read_decisions,
};

pub(super) fn run(data: &[u8]) {
    let known = [
        read::<RateLimitBody<'_>>(data).is_ok(),
        read::<ConfigureBody>(data).is_ok(),
        read::<ConfigureClientBody<'_>>(data).is_ok(),
    ];
    // What is read is text to everyone else too.
    assert!(!known.contains(&true) || std::str::from_utf8(data).is_ok());
    let bodies = match read_decisions(data) {
        Ok(DecisionBodies::One(body)) => vec![body],
        Ok(DecisionBodies::Batch(bodies)) => bodies,
        Err(_) => return,
    };
    assert!((1..=MAX_BATCH).contains(&bodies.len()));
    assert!(bodies.iter().all(|body| body.attributes.0.len() <= MAX_REQUEST_ATTRIBUTES));
}
