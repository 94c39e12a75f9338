//! The limits of the edge's listeners, decided by the engine of the decision service.

use std::sync::Arc;

use tidegate_edge::limits::{
    Denial, GrantedUnits, LimitPermit, LimitedConnection, Limits, LimitsAnswer, Ruling,
};
use tidegate_limiter::answers::Door;
use tidegate_limiter::connections::{NO_ANSWER, ServedConnection};
use tidegate_limiter::engine::Engine;
use tidegate_net::limits::MissingPolicy;

use super::denials::denial;

/// The engine, as the edge's limiter.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    pub(super) engine: Arc<Engine>,
    /// What becomes of connections whose listener lists a policy that is not in force.
    pub(super) missing: MissingPolicy,
}

impl<'c> Limits<LimitedConnection<'c>> for ConnectionLimits {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'c>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            if let Some(denial) = self.engine.denial_without(policies, self.missing) {
                return Ruling { denial: Some(denial), ..Ruling::default() };
            }
            match self.engine.decide_connection(policies, &served(connection)).await {
                Ok((decision, hold)) => {
                    let held = hold.map(LimitPermit::new);
                    Ruling { denial: denial(&decision), held, ..Ruling::default() }
                }
                Err(error) => {
                    let denial = Denial::NoAnswer(error.to_string());
                    Ruling { denial: Some(denial), ..Ruling::default() }
                }
            }
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
            if self.engine.denial_without(policies, self.missing).is_some() {
                return GrantedUnits { units: 0, after: NO_ANSWER };
            }
            self.engine.take_units(policies, &served(connection), most).await
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
