//! A candidate as it is configured: routes that are judged beside those in force.

use std::collections::HashSet;
use std::sync::Arc;

use super::route::RouteConfig;

/// Routes that are judged beside those in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CandidateConfig {
    /// Which candidate it is: the revision that it was stored at.
    pub revision: u64,
    /// All routes that there would be.
    pub routes: Vec<Arc<RouteConfig>>,
    /// Policies that they list and that are not in force.
    pub missing_policies: HashSet<Arc<str>>,
    /// Upstreams that would not be what they are.
    pub changed_upstreams: HashSet<Arc<str>>,
}
