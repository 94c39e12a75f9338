//! The type of the settings that list networks.

use std::fmt;

use tidegate_net::proxied::Network;
use tidegate_settings::list::Item;

/// A network whose addresses are allowed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedNetwork(pub Network);

impl AllowedNetwork {
    /// The networks of a list.
    pub(crate) fn networks(list: &[Self]) -> Vec<Network> {
        list.iter().map(|Self(network)| *network).collect()
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Item for AllowedNetwork {
    const ACCEPTED: &'static str = "networks, as in \"10.0.0.0/8\" or \"2001:db8::/32\"";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}
