//! The kinds of documents of the gateway: how each is read, and how many there may be.

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::Layered;

use super::{ROUTE, UPSTREAM};
use crate::config::{
    MAX_ROUTES, MAX_UPSTREAMS, RouteConfig, Source, UpstreamConfig, read_route, read_upstream,
};

/// What is counted for the limits of both.
const COUNTED: &str = "of them";

/// What `[[upstream]]` says, in documents.
pub(super) const UPSTREAMS: Layered<UpstreamConfig> =
    Layered { kind: UPSTREAM, most: MAX_UPSTREAMS, counted: COUNTED, read: read_stored_upstream };

/// What `[[route]]` says, in documents.
pub(super) const ROUTES: Layered<RouteConfig> =
    Layered { kind: ROUTE, most: MAX_ROUTES, counted: COUNTED, read: read_stored_route };

fn read_stored_upstream(value: &Value, pointer: &str) -> Result<(Arc<str>, UpstreamConfig), Vec<Mistake>> {
    let config = read_upstream(value, pointer, Source::Stored)?;
    Ok((Arc::clone(&config.name), config))
}

fn read_stored_route(value: &Value, pointer: &str) -> Result<(Arc<str>, RouteConfig), Vec<Mistake>> {
    let config = read_route(value, pointer, Source::Stored)?;
    Ok((Arc::clone(&config.name), config))
}
