//! `POST /v1/decisions`: attributes in, one decision out, or a batch.
//!
//! A denied request is a 200: the question was answered. The items of a batch are checked all
//! before the first is decided, then decided in order, each atomic by itself.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::{Attributes, MAX_UNITS, Mode};
use tidegate_net::http::{Answered, Plain, Unwritten};
use tidegate_net::stats::Route;
use tidegate_store::Degraded;
use tidegate_wire::bodies::{AttributesBody, DecisionBodies, DecisionBody, read, read_decisions};
use tidegate_wire::path::readings;
use utoipa::ToSchema;

use super::ApiState;
use super::own_limits::own_limit;
use super::permit_text::{pairs, permit_fits, permit_text};
use super::quota::describe;
use super::reply::{Refusal, Reply, Stated, decided, expect_json, is_json, json};
use crate::answers::Door;
use crate::decision::{Decision, Part};
use crate::engine::{Ask, OwnLimit};
use crate::error::AskError;
use crate::policy_set::PolicySet;

/// The answer to one request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DecisionReply {
    /// Whether the request may go ahead.
    pub(super) allowed: bool,
    /// True where no policy applies to the request: then `on_no_match` in the configuration decided.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) no_match: bool,
    /// The policy that speaks for the decision; absent if none applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(super) policy: Option<Arc<str>>,
    /// The most that the client can spend at once under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u64>,
    /// What the client can still spend under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<u64>,
    /// Whole seconds to wait, denials only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after: Option<u64>,
    /// Milliseconds to wait, rounded up; absent if the request can never be allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<u64>,
    /// Milliseconds until the whole quota is back, if nothing more is spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reset_ms: Option<u64>,
    /// Milliseconds to hold the request back, leaky buckets only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_ms: Option<u64>,
    /// How the answer was found without the store: `local`, `open` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(super) degraded: Option<&'static str>,
    /// The permit that a concurrency limit handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) permit: Option<String>,
    /// Every policy that applied.
    #[serde(serialize_with = "each")]
    #[schema(value_type = Vec<PartReply>)]
    pub(super) policies: SmallVec<[PartReply; 2]>,
}

/// Writes a list.
fn each<S: Serializer>(parts: &[PartReply], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(parts)
}

/// One policy's part.
#[derive(Debug, Serialize, ToSchema)]
pub struct PartReply {
    /// Its name.
    #[schema(value_type = String)]
    policy: Arc<str>,
    /// `enforce` or `shadow`.
    #[schema(value_type = String)]
    mode: Mode,
    /// Whether it had room.
    allowed: bool,
    /// The most that can be spent at once.
    limit: u64,
    /// What can still be spent.
    remaining: u64,
    /// Milliseconds until the same request would fit, rounded up; absent if it does or never will.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Milliseconds until the whole quota is back.
    reset_ms: u64,
    /// True where it limits requests at one time: then any release may end a denial before its wait is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    concurrent: bool,
}

/// One answer, or one per item of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum DecisionReplies {
    /// For an object.
    One(Box<DecisionReply>),
    /// For a list.
    Batch(Vec<DecisionReply>),
}

/// One request, or a batch of 1 to 1,000.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it stands for two shapes in the OpenAPI document")]
pub(super) enum DecisionRequests {
    One(DecisionBody<'static>),
    Batch(Vec<DecisionBody<'static>>),
}

/// Decides one request, or up to 1,000 in their order.
#[utoipa::path(
    post, path = "/v1/decisions", tag = "decisions",
    request_body(content = DecisionRequests, example = json!({"attributes": {"client_id": "user123", "path": "/v1/pay"}, "cost": 1})),
    responses(
        (status = 200, description = "The question was answered, also by a denial; a list by a list.", body = DecisionReplies,
            example = json!({"allowed": true, "policy": "per-client", "limit": 100, "remaining": 99, "reset_ms": 600, "policies": [{"policy": "per-client", "mode": "enforce", "allowed": true, "limit": 100, "remaining": 99, "reset_ms": 600}]})),
        Problems,
    )
)]
pub(super) async fn decide(shared: &ApiState, head: &Parts, body: &[u8]) -> Reply {
    match answer(shared, head, body).await {
        Ok(reply) => reply,
        Err(refusal) => refusal.reply(),
    }
}

/// As [`decide`] for one request, from the buffer that it was read into to the one that the reply leaves from. `None`,
/// without a trace, for everything but a decision by policies.
pub(super) fn decide_at_once(
    shared: &ApiState,
    request: &Plain<'_>,
    reply: Unwritten<'_>,
    route: Route,
) -> Option<Answered> {
    if !is_json(request.field("content-type"), request.field("content-encoding")) {
        return None;
    }
    let DecisionBodies::One(mut body) = read_decisions(request.body()).ok()? else { return None };
    if body.limits.is_some() {
        return None;
    }
    let set = shared.engine.in_force();
    normalise(&set, &mut body);
    let pairs = pairs(&body.attributes);
    let decision = shared.engine.decide_now(&ask(&set, &body, &pairs).ok()?)?;
    let answer = DecisionReply::new(shared, &decision, &body.attributes);
    // Invariant: as for `json`.
    let write = |body: &mut Vec<u8>| serde_json::to_writer(body, &answer).unwrap_or_default();
    Some(decided(shared, &decision, reply, route, write))
}

async fn answer(shared: &ApiState, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    expect_json(&head.headers)?;
    match read_decisions(body)? {
        DecisionBodies::One(mut body) => {
            normalise(&shared.engine.in_force(), &mut body);
            let own = own_limit(shared, &body, Stated::Body)?;
            let decision = decide_one(shared, &body, own.as_ref()).await?;
            let answer = DecisionReply::new(shared, &decision, &body.attributes);
            let mut reply = json(&DecisionReplies::One(Box::new(answer)));
            describe(shared, &decision, reply.headers_mut());
            Ok(reply)
        }
        DecisionBodies::Batch(mut batch) => {
            let (set, mut own) = (shared.engine.set(), Vec::with_capacity(batch.len()));
            for (index, body) in batch.iter_mut().enumerate() {
                normalise(&set, body);
                check(shared, body).map_err(Stated::Item(index).refusal())?;
                own.push(own_limit(shared, body, Stated::Item(index))?);
            }
            let mut replies = Vec::with_capacity(batch.len());
            for (index, (body, own)) in batch.iter().zip(&own).enumerate() {
                let decision =
                    decide_one(shared, body, own.as_ref()).await.map_err(Stated::Item(index).refusal())?;
                replies.push(DecisionReply::new(shared, &decision, &body.attributes));
            }
            Ok(json(&DecisionReplies::Batch(replies)))
        }
    }
}

/// Reads the body of a route that takes one request.
pub(super) fn read_one<'b>(shared: &ApiState, body: &'b [u8]) -> Result<DecisionBody<'b>, Refusal> {
    let mut body: DecisionBody<'_> = read(body)?;
    normalise(&shared.engine.in_force(), &mut body);
    Ok(body)
}

/// Puts the attribute `path` into its normal form before anything is matched or counted by it, with other readings behind
/// it where servers disagree (fault 54).
pub(super) fn normalise(set: &PolicySet, body: &mut DecisionBody<'_>) {
    if !set.uses("path") && body.limits.is_none() {
        return;
    }
    let Some((_, path)) = body.attributes.0.iter_mut().find(|(name, _)| name == "path") else { return };
    let read = readings(path.as_bytes());
    // Invariant: a reading of a text is a text; only whole escapes and segments are taken out.
    let text = |bytes: Vec<u8>| Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
    let others: Vec<_> = read.other.into_iter().chain(read.literal).map(text).collect();
    if read.first != path.as_bytes() {
        *path = text(read.first.into_owned());
    }
    body.attributes.0.extend(others.into_iter().map(|other| (Cow::Borrowed("path"), other)));
}

/// What the engine would refuse, found before the first item of a batch is charged.
fn check(shared: &ApiState, body: &DecisionBody<'_>) -> Result<(), AskError> {
    if body.cost > MAX_UNITS {
        return Err(AskError::CostTooLarge(body.cost));
    }
    permit_fits(&shared.engine.set(), &Attributes::new(&pairs(&body.attributes)))
}

/// Decides one request, by `own` where no policy applies.
pub(super) async fn decide_one(
    shared: &ApiState,
    body: &DecisionBody<'_>,
    own: Option<&OwnLimit<'_>>,
) -> Result<Decision, AskError> {
    let pairs = pairs(&body.attributes);
    let ask = ask(&shared.engine.in_force(), body, &pairs)?;
    match own {
        // In a box: other decisions carry no room for it.
        Some(own) => Box::pin(shared.engine.decide_with(&ask, own)).await,
        None => shared.engine.decide(&ask).await,
    }
}

fn ask<'a>(
    set: &PolicySet,
    body: &DecisionBody<'_>,
    pairs: &'a [(&'a str, &'a [u8])],
) -> Result<Ask<'a>, AskError> {
    let attributes = Attributes::new(pairs);
    permit_fits(set, &attributes)?;
    Ok(Ask { attributes, cost: body.cost, peek: body.peek, can_release: true, door: Door::Http })
}

impl DecisionReply {
    pub(super) fn new(shared: &ApiState, decision: &Decision, attributes: &AttributesBody<'_>) -> Self {
        let deciding = decision.deciding();
        let verdict = deciding.map(|part| part.verdict);
        let delay = decision.parts.iter().map(|part| part.verdict.delay).max().unwrap_or(0);
        Self {
            allowed: decision.allowed,
            no_match: decision.no_match(),
            policy: deciding.map(|part| part.policy.clone()),
            limit: verdict.map(|verdict| verdict.limit),
            remaining: verdict.map(|verdict| verdict.remaining),
            retry_after: decision.retry_after_seconds(),
            retry_after_ms: deciding.filter(|_| !decision.allowed).and_then(wait_ms),
            reset_ms: verdict.map(|verdict| millis(verdict.reset)),
            delay_ms: (decision.allowed && delay > 0).then(|| millis(delay)),
            degraded: decision.degraded.map(Degraded::word),
            permit: decision.permit.map(|id| permit_text(shared, decision, id, attributes)),
            policies: decision.parts.iter().map(PartReply::new).collect(),
        }
    }
}

impl PartReply {
    pub(crate) fn new(part: &Part) -> Self {
        Self {
            policy: part.policy.clone(),
            mode: part.mode,
            allowed: part.verdict.allowed,
            limit: part.verdict.limit,
            remaining: part.verdict.remaining,
            retry_after_ms: wait_ms(part),
            reset_ms: millis(part.verdict.reset),
            concurrent: part.concurrent,
        }
    }
}

/// The wait in milliseconds, if waiting helps.
fn wait_ms(part: &Part) -> Option<u64> {
    match part.verdict.wait {
        tidegate_algorithms::limit::Wait::For(nanos) => Some(millis(nanos)),
        _ => None,
    }
}

/// Milliseconds, rounded up.
pub(super) fn millis(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_algorithms::policy::{Pattern, parse};
    use tidegate_control::Snapshot;
    use tidegate_wire::path::one_spelling;

    use super::*;
    use crate::policy_set::FileLayer;
    use crate::tally::Tallies;

    fn set(policy: &serde_json::Value) -> PolicySet {
        let file = FileLayer { policies: vec![parse(policy, "").unwrap()], ..FileLayer::default() };
        PolicySet::assemble(Arc::new(file), Snapshot::default(), &Tallies::default())
    }

    /// What is matched of a request with this path.
    fn sent(set: &PolicySet, path: &str) -> Vec<String> {
        let text = json!({"attributes": {"path": path}}).to_string();
        let mut body: DecisionBody<'_> = read(text.as_bytes()).unwrap();
        normalise(set, &mut body);
        body.attributes.0.iter().map(|(_, value)| value.to_string()).collect()
    }

    #[test]
    fn a_path_has_its_normal_form_where_a_policy_looks_at_it() {
        let keyed = json!({"name": "a", "key": ["path"], "limit": 1, "window_seconds": 1});
        let matched =
            json!({"name": "a", "key": [], "match": {"path": "/pay"}, "limit": 1, "window_seconds": 1});
        for policy in [keyed, matched] {
            let set = set(&policy);
            assert_eq!(sent(&set, "//%70ay/"), ["/pay"]);
            assert_eq!(sent(&set, "/a%2fb"), ["/a%2Fb", "/a/b"]);
            assert_eq!(sent(&set, "/100%"), ["/100%25"]);
            assert_eq!(sent(&set, "*"), ["*"]);
        }
    }

    /// Two crates that do not know each other spell them.
    #[test]
    fn patterns_of_paths_are_spelt_as_paths_are() {
        let escapes = (0..=u8::MAX).map(|byte| format!("/a%{byte:02x}b"));
        let plain = (' '..='~').chain(['\u{e9}', '\u{2603}']).map(|character| format!("/a{character}b"));
        let broken = ["/a%", "/a%2", "/%zz", "/%+4", "/%\u{e9}1"].map(str::to_owned);
        for text in escapes.chain(plain).chain(broken) {
            let document =
                json!({"name": "a", "key": [], "match": {"path": text}, "limit": 1, "window_seconds": 1});
            let policy = parse(&document, "").unwrap();
            let expected = String::from_utf8(one_spelling(text.as_bytes())).unwrap();
            assert_eq!(policy.matches, [("path".to_owned(), Pattern::Exact(expected))], "{text:?}");
        }
    }

    #[test]
    fn a_path_is_counted_however_its_characters_are_spelt() {
        for (pattern, path) in [
            ("/things:cancel", "/things%3Acancel"),
            ("/things%3acancel", "/things:cancel"),
            ("/@me*", "/%40me/x"),
            ("/caf\u{e9}", "/caf%c3%a9"),
            ("/caf%C3%A9", "/caf\u{e9}"),
        ] {
            let document =
                json!({"name": "a", "key": [], "match": {"path": pattern}, "limit": 1, "window_seconds": 1});
            let sent = sent(&set(&document), path);
            let policy = parse(&document, "").unwrap();
            assert!(policy.matches[0].1.matches(sent[0].as_bytes()), "{pattern} {sent:?}");
        }
    }

    #[test]
    fn any_path_is_taken_where_no_policy_looks_at_it() {
        let set = set(&json!({"name": "a", "key": ["client_id"], "limit": 1, "window_seconds": 1}));
        for path in ["//%70ay/", "/a%2Fb", "/100%", "*", ""] {
            assert_eq!(sent(&set, path), [path]);
        }
    }
}
