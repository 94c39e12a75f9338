//! `/v1/playground`: what limits would say to requests at stated times. The same functions answer as in real
//! decisions; nothing is stored, counted or charged.
//!
//! ```text
//!   policies, requests, points ── for each policy, in the order of time: check, charge ──> verdicts
//!                                                        and between them: check 0     ──> points of the curve
//! ```
//!
//! Bounds: [`MAX_POLICIES`], [`MAX_REQUESTS`], [`MAX_POINTS`], [`MAX_COST`].

use axum::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_algorithms::limit::{Limit, PermitId, State, Wait};
use tidegate_algorithms::policy::{MAX_WINDOW_SECONDS, parse};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_wire::bodies::read;
use tidegate_wire::problem::FieldError;
use utoipa::ToSchema;

/// Most policies that are compared.
const MAX_POLICIES: usize = 8;
/// Most requests.
const MAX_REQUESTS: usize = 2_000;
/// Most points of a curve.
const MAX_POINTS: u64 = 500;
/// Largest cost of a request.
const MAX_COST: u64 = 100;

/// The beginning of simulated time, in seconds since the Unix epoch: the first moment of 2026 in UTC, where windows
/// of whole minutes, hours and days begin.
const BEGINNING: u64 = 1_767_225_600;

/// What is tried.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// Policies as they are put; `name`, `match` and `key` change nothing here. 1 to 8.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 8)]
    policies: Vec<Value>,
    /// Requests in the order of time, at most 2,000.
    #[schema(max_items = 2000)]
    requests: Vec<TriedRequest>,
    /// Until when the curves are drawn, in milliseconds from the beginning. At most 90 days.
    #[schema(minimum = 1, maximum = 7_776_000_000_u64, example = 60_000)]
    until_ms: u64,
    /// Points of a curve beside those of the requests, 0 to 500.
    #[serde(default)]
    #[schema(maximum = 500, example = 120)]
    points: u64,
}

/// A request of one client.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TriedRequest {
    /// When, in milliseconds from the beginning.
    #[schema(example = 250)]
    at_ms: u64,
    /// Units; 1 if absent, at most 100.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 100, example = 1)]
    cost: u64,
}

fn one() -> u64 {
    1
}

/// What became of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Tried {
    /// One for each policy, in their order.
    curves: Vec<Curve>,
}

/// What one policy said.
#[derive(Debug, Serialize, ToSchema)]
struct Curve {
    /// The most that can be spent at once.
    limit: u64,
    /// What remains over time.
    points: Vec<Point>,
    /// What each request was told, in their order.
    verdicts: Vec<TriedVerdict>,
}

/// What remains at a time.
#[derive(Debug, Serialize, ToSchema)]
struct Point {
    /// Milliseconds from the beginning.
    at_ms: u64,
    /// Units.
    remaining: u64,
}

/// What a request was told.
#[derive(Debug, Serialize, ToSchema)]
struct TriedVerdict {
    /// Whether it went through.
    allowed: bool,
    /// What remained after it.
    remaining: u64,
    /// How long to wait before the same request goes through, in milliseconds, rounded up; absent if it went through
    /// or never will.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// How long it would be held back for its turn, in milliseconds; of a leaky bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
}

/// Says what policies would answer to requests at stated times. Charges nothing. The time begins at
/// 2026-01-01T00:00:00Z.
#[utoipa::path(
    operation_id = "try_policies", post, path = "/v1/playground", tag = "decisions",
    request_body(content = Trial, example = json!({"policies": [{"algorithm": "fixed_window", "limit": 2, "window_seconds": 10}],
        "requests": [{"at_ms": 9000}, {"at_ms": 9500}, {"at_ms": 9900}, {"at_ms": 10000}], "until_ms": 20000, "points": 0})),
    responses(
        (status = 200, description = "What each policy says.", body = Tried,
            example = json!({"curves": [{"limit": 2, "points": [{"at_ms": 9000, "remaining": 1}],
                "verdicts": [{"allowed": true, "remaining": 1}, {"allowed": true, "remaining": 0}, {"allowed": false, "remaining": 0, "retry_after_ms": 100}, {"allowed": true, "remaining": 1}]}]})),
        Problems,
    )
)]
pub(super) async fn try_policies(JsonBytes(body): JsonBytes) -> Result<Json<Tried>, Refusal> {
    let trial: Trial = read(&body)?;
    let limits = checked(&trial)?;
    Ok(Json(Tried { curves: limits.iter().map(|limit| curve(limit, &trial)).collect() }))
}

/// The limits of a trial within its bounds.
fn checked(trial: &Trial) -> Result<Vec<Limit>, Refusal> {
    let Trial { policies, requests, until_ms, points } = trial;
    let refuse =
        |place: &str, problem: String, accepted: String| Err(Refusal::field(place, problem, accepted));
    if policies.is_empty() || policies.len() > MAX_POLICIES {
        return refuse(
            "/policies",
            format!("has {} entries", policies.len()),
            format!("1 to {MAX_POLICIES}"),
        );
    }
    if requests.len() > MAX_REQUESTS {
        let problem = format!("has {} entries", requests.len());
        return refuse("/requests", problem, format!("at most {MAX_REQUESTS}"));
    }
    let longest = MAX_WINDOW_SECONDS * 1_000;
    if !(1..=longest).contains(until_ms) {
        return refuse("/until_ms", format!("is {until_ms}"), format!("1 to {longest}"));
    }
    if *points > MAX_POINTS {
        return refuse("/points", format!("is {points}"), format!("at most {MAX_POINTS}"));
    }
    let mut last = 0;
    for (place, request) in requests.iter().enumerate() {
        if !(last..=longest).contains(&request.at_ms) {
            let accepted = format!("{last}, when the one before it is, to {longest}");
            return refuse(&format!("/requests/{place}/at_ms"), format!("is {}", request.at_ms), accepted);
        }
        if !(1..=MAX_COST).contains(&request.cost) {
            let problem = format!("is {}", request.cost);
            return refuse(&format!("/requests/{place}/cost"), problem, format!("1 to {MAX_COST}"));
        }
        last = request.at_ms;
    }
    let mut mistakes = Vec::new();
    let mut limits = Vec::new();
    for (place, document) in policies.iter().enumerate() {
        match parse(&named(document), &format!("/policies/{place}")) {
            Ok(policy) => limits.push(policy.quota.limit),
            Err(found) => mistakes.extend(found),
        }
    }
    if mistakes.is_empty() {
        return Ok(limits);
    }
    let errors = mistakes.into_iter().map(|mistake| FieldError {
        pointer: mistake.pointer,
        detail: mistake.problem,
        accepted: mistake.accepted,
    });
    Err(Refusal::fields("a policy is wrong", errors.collect()))
}

/// Gives a name to a policy without one; replies do not show it.
fn named(document: &Value) -> Value {
    let mut document = document.clone();
    if let Some(fields) = document.as_object_mut() {
        fields.entry("name").or_insert_with(|| json!("tried"));
    }
    document
}

fn curve(limit: &Limit, trial: &Trial) -> Curve {
    let mut state = State::Fresh;
    let mut points = Vec::new();
    let mut verdicts = Vec::new();
    let mut samples = (0..=trial.points).filter(|_| trial.points > 0);
    let mut samples = std::iter::from_fn(|| Some(samples.next()? * trial.until_ms / trial.points)).peekable();
    for (permit, request) in (1..).zip(&trial.requests) {
        while let Some(at_ms) = samples.next_if(|at_ms| *at_ms < request.at_ms) {
            points.push(Point { at_ms, remaining: limit.check(&mut state, instant(at_ms), 0).remaining });
        }
        let now = instant(request.at_ms);
        let verdict = limit.check(&mut state, now, request.cost);
        if verdict.allowed {
            limit.charge(&mut state, now, request.cost, PermitId(permit));
        }
        points.push(Point { at_ms: request.at_ms, remaining: verdict.remaining });
        verdicts.push(TriedVerdict {
            allowed: verdict.allowed,
            remaining: verdict.remaining,
            retry_after_ms: match verdict.wait {
                Wait::For(nanos) => Some(rounded_up(nanos)),
                Wait::None | Wait::Never => None,
            },
            delay_ms: (verdict.delay > 0).then(|| rounded_up(verdict.delay)),
        });
    }
    for at_ms in samples {
        points.push(Point { at_ms, remaining: limit.check(&mut state, instant(at_ms), 0).remaining });
    }
    Curve { limit: limit.quota(), points, verdicts }
}

fn instant(at_ms: u64) -> Now {
    // Invariant: times are at most 90 days, so that the sum is far below the end of ticks.
    Now::at(BEGINNING * SECOND + at_ms * 1_000_000)
}

fn rounded_up(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(body: &Value) -> Result<Tried, Refusal> {
        let trial: Trial = serde_json::from_value(body.clone()).unwrap();
        let limits = checked(&trial)?;
        Ok(Tried { curves: limits.iter().map(|limit| curve(limit, &trial)).collect() })
    }

    #[test]
    fn two_windows_edge_lets_a_fixed_window_admit_twice_its_limit_and_a_log_never() {
        let requests: Vec<Value> = (0..8).map(|n| json!({"at_ms": 9_600 + 100 * n})).collect();
        let policy = |algorithm| json!({"algorithm": algorithm, "limit": 4, "window_seconds": 10});
        let policies = [policy("fixed_window"), policy("sliding_log")];
        let body = json!({"policies": policies, "requests": requests, "until_ms": 20_000, "points": 20});
        let Tried { curves } = tried(&body).unwrap();
        let admitted = |place: usize| curves[place].verdicts.iter().filter(|verdict| verdict.allowed).count();
        assert_eq!((admitted(0), admitted(1)), (8, 4));
        assert_eq!(curves[1].verdicts[4].retry_after_ms, Some(9_600));
        // 21 points of the curve and one for each request, in the order of time.
        let times: Vec<u64> = curves[0].points.iter().map(|point| point.at_ms).collect();
        assert!(times.is_sorted() && times.len() == 29, "{times:?}");
        assert_eq!(curves[0].points.last().unwrap().remaining, 4);
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let good = json!({"limit": 1, "window_seconds": 1});
        let refused = |policies: Value, requests: Value, until_ms: u64, points: u64| {
            let body =
                json!({"policies": policies, "requests": requests, "until_ms": until_ms, "points": points});
            tried(&body).unwrap_err().0.errors[0].pointer.clone()
        };
        let none = || json!([]);
        let many = vec![json!({"at_ms": 0}); MAX_REQUESTS + 1];
        assert_eq!(refused(none(), none(), 1, 0), "/policies");
        assert_eq!(refused(json!(vec![good.clone(); 9]), none(), 1, 0), "/policies");
        assert_eq!(refused(json!([good]), json!(many), 1, 0), "/requests");
        assert_eq!(refused(json!([good]), none(), 0, 0), "/until_ms");
        assert_eq!(refused(json!([good]), none(), u64::MAX, 0), "/until_ms");
        assert_eq!(refused(json!([good]), none(), 1, 501), "/points");
        assert_eq!(refused(json!([good]), json!([{"at_ms": 1, "cost": 0}]), 1, 0), "/requests/0/cost");
        let backwards = json!([{"at_ms": 2}, {"at_ms": 1}]);
        assert_eq!(refused(json!([good]), backwards, 1, 0), "/requests/1/at_ms");
        let wrong = json!([good, {"limit": -1, "window_seconds": 1}]);
        assert_eq!(refused(wrong, none(), 1, 0), "/policies/1/limit");
    }
}
