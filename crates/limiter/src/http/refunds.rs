//! `POST /v1/refunds`: units go back to where a decision took them from.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::Attributes;
use tidegate_wire::bodies::DecisionBody;
use utoipa::ToSchema;

use super::ApiState;
use super::decisions::read_one;
use super::own_limits::own_limit;
use super::permit_text::pairs;
use super::reply::{JsonBytes, Refusal, Stated};
use crate::answers::Door;
use crate::engine::Ask;

/// The reply to a refund.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RefundReply {
    /// The policies that were given their units back.
    #[schema(value_type = Vec<String>)]
    policies: Vec<Arc<str>>,
}

/// Gives units back to every policy that applies.
#[utoipa::path(
    post, path = "/v1/refunds", tag = "decisions",
    request_body(content = DecisionBody<'_>, example = json!({"attributes": {"client_id": "user123", "path": "/v1/pay"}, "cost": 1})),
    responses(
        (status = 200, description = "They were given back.", body = RefundReply,
            example = json!({"policies": ["per-client"]})),
        Problems,
    )
)]
pub(super) async fn refund(
    State(shared): State<Arc<ApiState>>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<RefundReply>, Refusal> {
    let body = read_one(&shared, &body)?;
    let own = own_limit(&shared, &body, Stated::Body)?;
    let pairs = pairs(&body.attributes);
    let ask = Ask {
        attributes: Attributes::new(&pairs),
        cost: body.cost,
        peek: false,
        can_release: false,
        door: Door::Http,
    };
    let policies = match own {
        Some(own) => shared.engine.refund_with(&ask, &own).await?,
        None => shared.engine.refund(&ask).await?,
    };
    Ok(Json(RefundReply { policies }))
}
