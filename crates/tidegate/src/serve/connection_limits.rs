//! The limits of the edge's listeners, decided by the engine of the decision service.

use std::sync::Arc;

use tidegate_algorithms::policy::Mode;
use tidegate_edge::limits::{Asked, ConnectionPermit, Denial, GrantedUnits, LimitedConnection, Limits};
use tidegate_limiter::answers::Door;
use tidegate_limiter::connections::{ConnectionError, ServedConnection};
use tidegate_limiter::decision::Decision;
use tidegate_limiter::engine::Engine;

/// The engine, as the edge's limiter.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    pub(super) engine: Arc<Engine>,
    /// Whether a listener's connections are served only while all of its policies are in force.
    pub(super) needs_all: bool,
}

impl Limits for ConnectionLimits {
    fn admit<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
    ) -> Asked<'a, Result<Option<ConnectionPermit>, Denial>> {
        Box::pin(async move {
            let asked = self.engine.decide_connection(policies, self.needs_all, &served(connection)).await;
            match asked {
                Ok((decision, hold)) => match denial(&decision) {
                    None => Ok(hold.map(ConnectionPermit::new)),
                    Some(denial) => Err(denial),
                },
                Err(ConnectionError::NoPolicy(policy)) => {
                    Err(Denial::NoPolicy { policy: policy.to_string() })
                }
                Err(error @ ConnectionError::Ask(_)) => Err(Denial::NoAnswer(error.to_string())),
            }
        })
    }

    fn pass(&self) {
        self.engine.answers().count_unlimited(Door::Edge);
    }

    fn take_units<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        most: u64,
    ) -> Asked<'a, GrantedUnits> {
        Box::pin(async move {
            let connection = served(connection);
            let grant = self.engine.take_units(policies, self.needs_all, &connection, most).await;
            GrantedUnits { units: grant.units, after: grant.after }
        })
    }

    fn give_units_back<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        units: u64,
    ) -> Asked<'a, ()> {
        Box::pin(async move {
            if let Err(error) = self.engine.give_units_back(policies, &served(connection), units).await {
                tracing::debug!(%error, "units of bytes could not be given back");
            }
        })
    }
}

fn served<'a>(connection: &LimitedConnection<'a>) -> ServedConnection<'a> {
    let &LimitedConnection { listener, app, client, server_name, country, region } = connection;
    ServedConnection { listener, app, client, server_name, country, region }
}

fn denial(decision: &Decision) -> Option<Denial> {
    if decision.allowed {
        return None;
    }
    if decision.no_match() {
        return Some(Denial::NoMatch);
    }
    let denied = decision.parts.iter().filter(|part| !part.verdict.allowed && part.mode == Mode::Enforce);
    Some(Denial::Quota { policies: denied.map(|part| part.policy.to_string()).collect() })
}
