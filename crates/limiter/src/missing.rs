//! Policies that are listed for traffic and not in force.

use std::sync::Arc;

use tidegate_net::limits::{Denial, MissingPolicy};

use crate::engine::Engine;

impl Engine {
    /// Why traffic does not pass for which `policies` are listed, if one of them is not in force and `rule` says so.
    #[must_use]
    pub fn denial_without(&self, policies: &[Arc<str>], rule: MissingPolicy) -> Option<Denial> {
        rule.denial(|| self.in_force().first_missing(policies))
    }
}
