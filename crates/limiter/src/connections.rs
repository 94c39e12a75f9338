//! Decisions about connections that a TCP edge accepts, and about the bytes on them: under the policies that their
//! listener lists.
//!
//! | attribute | is |
//! |---|---|
//! | `listener`, `app` | the listener's address; whose backends the connection is for |
//! | `ip`, `client_id` | the client's address; an IPv6 one as its /64 |
//! | `server_name`, `country`, `region` | the server name that it asks for, and where the client is, if that is known |
//!
//! A connection costs one unit, and what concurrency limits have granted is held until it ends. Bytes cost one unit
//! each, before they are read.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::Verdict;
use tidegate_algorithms::policy::{Attributes, Mode};
use tidegate_net::limits::GrantedUnits;

use crate::answers::Door;
use crate::decision::{Decision, Part};
use crate::engine::{Ask, Engine};
use crate::error::AskError;
use crate::policy_set::CLIENT_ID;
use crate::routed_permits::{RoutedHold, RoutedPermit};
use crate::sources;

/// The attributes of a connection; `server_name`, `country` and `region` where they are known.
pub const ATTRIBUTES: [&str; 7] = ["listener", "app", "ip", CLIENT_ID, "server_name", "country", "region"];

/// How long to wait before asking again where no limit says how long.
pub const NO_ANSWER: Duration = Duration::from_secs(1);

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ServedConnection<'a> {
    /// The address of its listener.
    pub listener: &'a str,
    /// The app whose backends it is for.
    pub app: &'a str,
    /// Whose it is.
    pub client: IpAddr,
    /// The server name that it asks for.
    pub server_name: Option<&'a str>,
    /// The client's country.
    pub country: Option<&'a str>,
    /// The client's region.
    pub region: Option<&'a str>,
}

impl Engine {
    /// Decides a connection under those of `policies` that apply. What concurrency limits have granted is held until
    /// the second value is dropped.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn decide_connection(
        self: &Arc<Self>,
        policies: &[Arc<str>],
        connection: &ServedConnection<'_>,
    ) -> Result<(Decision, Option<RoutedHold>), AskError> {
        let address = sources::address_text(connection.client);
        let pairs = connection.attributes(&address);
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost: 1,
            peek: false,
            can_release: true,
            door: Door::Edge,
        };
        let decision = self.decide_under(policies, &ask).await?;
        let permit = RoutedPermit::of(&decision, &pairs);
        Ok((decision, permit.map(|permit| permit.hold(Arc::clone(self)))))
    }

    /// Takes up to `most` units under those of `policies` that apply: at once, or none. Bytes that may not pass wait,
    /// also where the time is not known.
    pub async fn take_units(
        &self,
        policies: &[Arc<str>],
        connection: &ServedConnection<'_>,
        most: u64,
    ) -> GrantedUnits {
        let later = |after| GrantedUnits { units: 0, after };
        let address = sources::address_text(connection.client);
        let pairs = connection.attributes(&address);
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost: most,
            peek: false,
            can_release: false,
            door: Door::EdgeBytes,
        };
        match self.decide_up_to(policies, &ask).await {
            Ok((decision, units)) if decision.allowed => {
                let enforced = decision.parts.iter().filter(|part| part.mode == Mode::Enforce);
                let delay = enforced.map(|part| delay(&part.verdict)).max();
                GrantedUnits { units, after: delay.unwrap_or_default() }
            }
            Ok((decision, _)) => {
                let wait = decision.deciding().and_then(Part::wait);
                later(wait.map_or(NO_ANSWER, Duration::from_nanos))
            }
            Err(error) => {
                tracing::debug!(%error, "bytes of a connection wait, since there is no decision about them");
                later(NO_ANSWER)
            }
        }
    }

    /// Gives back units that were taken and did not come.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn give_units_back(
        &self,
        policies: &[Arc<str>],
        connection: &ServedConnection<'_>,
        units: u64,
    ) -> Result<(), AskError> {
        let address = sources::address_text(connection.client);
        let pairs = connection.attributes(&address);
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost: units,
            peek: false,
            can_release: false,
            door: Door::EdgeBytes,
        };
        self.refund_under(policies, &ask).await
    }
}

impl<'a> ServedConnection<'a> {
    fn attributes(&self, address: &'a str) -> Vec<(&'a str, &'a [u8])> {
        let always = [self.listener, self.app, address, address].map(Some);
        let values = always.into_iter().chain([self.server_name, self.country, self.region]);
        ATTRIBUTES
            .into_iter()
            .zip(values)
            .filter_map(|(name, value)| Some((name, value?.as_bytes())))
            .collect()
    }
}

fn delay(verdict: &Verdict) -> Duration {
    Duration::from_nanos(verdict.delay)
}
