//! The limits of the edge's listeners, decided by the engine of the decision service.

use std::sync::Arc;

use tidegate_edge::limits::{
    Denial, GrantedUnits, LimitPermit, LimitedConnection, Limits, LimitsAnswer, Ruling,
};
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

impl<'c> Limits<LimitedConnection<'c>> for ConnectionLimits {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'c>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let asked = self.engine.decide_connection(policies, self.needs_all, &served(connection)).await;
            let denial = match asked {
                Ok((decision, hold)) => {
                    let denial = denial(&decision);
                    return Ruling { denial, held: hold.map(LimitPermit::new), ..Ruling::default() };
                }
                Err(ConnectionError::NoPolicy(policy)) => Denial::NoPolicy { policy: policy.to_string() },
                Err(error @ ConnectionError::Ask(_)) => Denial::NoAnswer(error.to_string()),
            };
            Ruling { denial: Some(denial), ..Ruling::default() }
        })
    }

    fn pass(&self, _connection: &LimitedConnection<'c>) {
        self.engine.answers().count_unlimited(Door::Edge);
    }

    fn take_units<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'c>,
        most: u64,
    ) -> LimitsAnswer<'a, GrantedUnits> {
        Box::pin(async move {
            let connection = served(connection);
            self.engine.take_units(policies, self.needs_all, &connection, most).await
        })
    }

    fn give_units_back<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'c>,
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
