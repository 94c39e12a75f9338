//! Permits that can always be given back, and doors that hand out none.

use serde_json::{Value, json};
use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::policy::{Attributes, parse};
use tidegate_limiter::answers::Door;
use tidegate_limiter::engine::{Ask, Demand, HeldPermit};
use tidegate_limiter::policy_set::FileLayer;

use crate::api::support::{Running, start_with};

fn start(documents: &[Value]) -> Running {
    let policies = documents.iter().map(|document| parse(document, "").unwrap()).collect();
    start_with(FileLayer { policies, ..FileLayer::default() }, None)
}

fn concurrency(name: &str, limit: u64, more: &Value) -> Value {
    let mut document = json!({"name": name, "algorithm": "concurrency", "limit": limit, "lease_seconds": 30});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document
}

fn acquire(service: &Running, attributes: &Value) -> String {
    let answer = service.post("/v1/permits", &json!({"attributes": attributes}).to_string());
    assert_eq!(answer.body["allowed"], true, "{:?}", answer.body);
    answer.body["permit"].as_str().unwrap().to_owned()
}

/// The shadow limit has room for one permit and is asked about two.
#[test]
fn a_full_shadow_limit_leaves_live_permits_renewable() {
    let service = start(&[
        concurrency("enforced", 5, &json!({})),
        concurrency("trial", 1, &json!({"mode": "shadow", "lease_seconds": 20})),
    ]);
    let [first, second] = [(); 2].map(|()| acquire(&service, &json!({"client_id": "a"})));
    for (permit, lease) in [(&first, 20_000), (&second, 30_000)] {
        let renewed = service.post(&format!("/v1/permits/{permit}/renew"), "");
        assert_eq!((renewed.status, &renewed.body), (200, &json!({"lease_ms": lease})));
    }
    // What the shadow limit has lost does not matter either.
    assert_eq!(service.delete(&format!("/v1/permits/{first}")).status, 204);
    assert_eq!(service.post(&format!("/v1/permits/{first}/renew"), "").status, 404);
    assert_eq!(service.post(&format!("/v1/permits/{second}/renew"), "").status, 200);
    assert_eq!(service.delete(&format!("/v1/permits/{second}")).status, 204);
    assert_eq!(service.delete(&format!("/v1/permits/{second}")).status, 404);
}

/// A limit that came after the permit did not grant it.
#[test]
fn a_new_concurrency_policy_leaves_older_permits_renewable() {
    let service = start(&[concurrency("first", 5, &json!({}))]);
    let permit = acquire(&service, &json!({"client_id": "a"}));
    let more = concurrency("second", 5, &json!({}));
    assert!(service.put("/v1/policies/second", &more.to_string()).status < 300);
    assert_eq!(service.post(&format!("/v1/permits/{permit}/renew"), "").status, 200);
    assert_eq!(service.delete(&format!("/v1/permits/{permit}")).status, 204);
}

#[test]
fn a_permit_of_long_keys_can_be_given_back() {
    let service = start(&[concurrency("slots", 1, &json!({"key": ["client_id", "path"]}))]);
    // Each of these takes six bytes in JSON.
    let (client, path) = ("\u{1}".repeat(512), format!("/{}", "x".repeat(511)));
    let permit = acquire(&service, &json!({"client_id": client, "path": path}));
    assert_eq!(service.post(&format!("/v1/permits/{permit}/renew"), "").status, 200);
    assert_eq!(service.delete(&format!("/v1/permits/{permit}")).status, 204);
    acquire(&service, &json!({"client_id": client, "path": path}));
}

#[test]
fn a_permit_that_no_request_could_name_is_refused_before_anything_is_charged() {
    let names: Vec<String> = (0..12).map(|number| format!("attribute-{number}")).collect();
    let limit = json!({"name": "rate", "algorithm": "fixed_window", "limit": 1, "window_seconds": 7_776_000});
    let service = start(&[limit, concurrency("slots", 5, &json!({"key": names}))]);
    let mut attributes = json!({"client_id": "a"});
    for name in &names {
        attributes[name] = json!("x".repeat(512));
    }
    for path in ["/v1/permits", "/v1/decisions"] {
        let refused = service.post(path, &json!({"attributes": attributes}).to_string());
        assert_eq!(
            (refused.status, &refused.body["errors"][0]["pointer"]),
            (400, &json!("/attributes")),
            "{path}"
        );
    }
    let batch = json!([{"attributes": {"client_id": "a"}}, {"attributes": attributes}]);
    assert_eq!(service.post("/v1/decisions", &batch.to_string()).status, 400);
    let charged = service.get("/v1/explain?client_id=a").body;
    assert_eq!(charged["policies"][0]["verdict"]["remaining"], 0, "a peek of the only unit: {charged}");
    assert_eq!(charged["allowed"], true, "it was not spent");
}

/// A permit that is taken where it cannot be given back would be held until its lease ends.
#[test]
fn doors_that_take_nothing_back_hold_no_permit() {
    let service = start(&[concurrency("slots", 1, &json!({}))]);
    for _ in 0..3 {
        let answer = service.post("/api/v1/ratelimit", r#"{"client_id":"a","resource":"r"}"#);
        assert_eq!(answer.body["allowed"], true);
        assert_eq!(service.get("/v1/check").status, 204);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pairs: [(&str, &[u8]); 1] = [("client_id", b"a")];
    let attributes = Attributes::new(&pairs);
    for _ in 0..3 {
        let demand = Demand { attributes, cost: 1, given_back: 0, own: None };
        let decisions = runtime.block_on(service.engine.decide_together(&[demand])).unwrap();
        assert!(decisions[0].allowed && decisions[0].parts.is_empty());
    }
    // Who can give it back gets it.
    let ask = Ask { attributes, cost: 1, peek: false, can_release: true, door: Door::Http };
    let decision = runtime.block_on(service.engine.decide(&ask)).unwrap();
    let id = decision.permit.unwrap();
    assert!(!runtime.block_on(service.engine.decide(&ask)).unwrap().allowed, "it is held");
    let held = HeldPermit { id, policies: &["slots"], attributes };
    assert!(runtime.block_on(service.engine.release(&held)).unwrap());
    assert!(!runtime.block_on(service.engine.release(&HeldPermit { id: PermitId(1), ..held })).unwrap());
}

/// They would be taken for a limit, and limit nothing.
#[test]
fn numbers_of_a_limit_that_come_with_a_permits_request_are_refused() {
    let service = start(&[concurrency("slots", 1, &json!({}))]);
    let body = json!({"attributes": {"client_id": "a"}, "limits": {"limit": 1, "window_seconds": 60}});
    let answer = service.post("/v1/permits", &body.to_string());
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("/limits")));
    acquire(&service, &json!({"client_id": "a"}));
}

#[test]
fn what_is_no_permit_is_refused() {
    let service = start(&[concurrency("slots", 1, &json!({}))]);
    for text in ["nonsense", "0.", "0.AAA", "x.AAIAAA", "0.AAIAAQAB", "0.AAIAAAACAAEAAQ", "0.____"] {
        assert_eq!(service.delete(&format!("/v1/permits/{text}")).status, 422, "{text}");
    }
    assert_eq!(service.delete("/v1/permits/0.AAIAAA").status, 404, "a permit of no policy is held nowhere");
}
