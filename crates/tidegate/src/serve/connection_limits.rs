//! The limits of the edge's listeners, decided by the engine of the decision service.

use std::sync::Arc;

use tidegate_edge::limits::{Denial, GrantedUnits, LimitPermit, LimitedConnection, Limits, LimitsAnswer};
use tidegate_limiter::answers::Door;
use tidegate_limiter::connections::{ConnectionError, ServedConnection};
use tidegate_limiter::engine::Engine;

use super::denials::denial;

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
    ) -> LimitsAnswer<'a, Result<Option<LimitPermit>, Denial>> {
        Box::pin(async move {
            let asked = self.engine.decide_connection(policies, self.needs_all, &served(connection)).await;
            match asked {
                Ok((decision, hold)) => match denial(&decision) {
                    None => Ok(hold.map(LimitPermit::new)),
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
    ) -> LimitsAnswer<'a, GrantedUnits> {
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
    ) -> LimitsAnswer<'a, ()> {
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
