//! Decisions, refunds, permits, explanations, and the configuration as resources.

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use tidegate_admin::api::{DOCUMENTS, TEMPLATES as ADMIN_TEMPLATES};
use tidegate_algorithms::policy::parse;
use tidegate_limiter::http::TEMPLATES;
use tidegate_limiter::policy_set::FileLayer;

use crate::api::support::{Running, start, start_with};

fn policies(documents: &[Value]) -> FileLayer {
    let policies = documents.iter().map(|document| parse(document, "").unwrap()).collect();
    FileLayer { policies, ..FileLayer::default() }
}

fn two_policies() -> Running {
    start_with(
        policies(&[
            json!({"name": "per-client", "algorithm": "token_bucket", "limit": 5, "window_seconds": 60}),
            json!({"name": "per-path", "key": ["path"], "algorithm": "fixed_window", "limit": 3,
                   "window_seconds": 7_776_000, "match": {"method": ["POST", "PUT"]}}),
            json!({"name": "trial", "algorithm": "sliding_log", "limit": 1, "window_seconds": 60,
                   "mode": "shadow"}),
        ]),
        None,
    )
}

fn ask(client: &str, method: &str) -> String {
    json!({"attributes": {"client_id": client, "path": "/pay", "method": method}}).to_string()
}

#[test]
fn a_decision_names_the_policy_that_speaks_for_it() {
    let service = two_policies();
    let answer = service.post("/v1/decisions", &ask("a", "POST")).body;
    assert_eq!(answer["allowed"], true);
    assert_eq!((&answer["policy"], &answer["remaining"]), (&json!("per-path"), &json!(2)));
    assert_eq!(answer["policies"].as_array().unwrap().len(), 3);
    let get = service.post("/v1/decisions", &ask("a", "GET")).body;
    assert_eq!((&get["policy"], &get["remaining"]), (&json!("per-client"), &json!(3)));
}

#[test]
fn fault_16_several_policies_one_denies_nobody_else_is_charged() {
    let service = two_policies();
    for client in ["a", "b", "c"] {
        assert_eq!(service.post("/v1/decisions", &ask(client, "POST")).body["allowed"], true);
    }
    for _ in 0..5 {
        let denied = service.post("/v1/decisions", &ask("d", "POST")).body;
        assert_eq!((&denied["allowed"], &denied["policy"]), (&json!(false), &json!("per-path")));
        assert_eq!(denied["policies"][0]["remaining"], 5, "per-client is not charged: {denied}");
    }
    assert_eq!(service.post("/v1/decisions", &ask("d", "GET")).body["remaining"], 4);
}

#[test]
fn fault_17_headers_of_a_denial_describe_the_policy_with_the_longest_wait() {
    let service = two_policies();
    for _ in 0..3 {
        service.post("/v1/decisions", &ask("a", "POST"));
    }
    service.post("/v1/decisions", &ask("a", "GET"));
    service.post("/v1/decisions", &ask("a", "GET"));
    // Now both deny: the bucket for at most 12 s, the window possibly for an hour.
    let denied = service.post("/v1/decisions", &ask("a", "POST"));
    let waits: Vec<(String, u64)> = denied.body["policies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["mode"] == "enforce" && part["allowed"] == false)
        .map(|part| (part["policy"].as_str().unwrap().to_owned(), part["retry_after_ms"].as_u64().unwrap()))
        .collect();
    assert_eq!(waits.len(), 2, "{}", denied.body);
    let (longest, millis) = waits.iter().max_by_key(|(_, wait)| *wait).unwrap();
    assert_eq!(denied.body["policy"], longest.as_str());
    let seconds = millis.div_ceil(1_000);
    assert_eq!(denied.header("retry-after"), seconds.to_string());
    assert_eq!(denied.header("ratelimit"), format!("\"{longest}\";r=0;t={seconds}"));
    assert!(denied.header("ratelimit-policy").starts_with(&format!("\"{longest}\";q=")));
    // The older style, where it is switched on, describes the same policy.
    assert_eq!(denied.header("x-ratelimit-limit"), denied.body["limit"].to_string());
    assert_eq!(denied.header("x-ratelimit-remaining"), "0");
    assert_eq!(denied.header("x-ratelimit-reset"), seconds.to_string());
}

#[test]
fn shadow_mode_counts_and_never_denies() {
    let service = two_policies();
    for _ in 0..3 {
        assert_eq!(service.post("/v1/decisions", &ask("a", "GET")).body["allowed"], true);
    }
    let tallies = service.engine.tallies().read();
    let (_, trial) = tallies.iter().find(|(name, _)| &**name == "trial").unwrap();
    assert_eq!((trial.allowed, trial.denied, trial.shadow_denied), (1, 0, 2));
}

#[test]
fn cost_peek_and_refund_add_up() {
    let service = two_policies();
    let body = |cost: u64, peek: bool| {
        json!({"attributes": {"client_id": "a"}, "cost": cost, "peek": peek}).to_string()
    };
    assert_eq!(service.post("/v1/decisions", &body(3, true)).body["remaining"], 2);
    assert_eq!(service.post("/v1/decisions", &body(0, false)).body["remaining"], 5);
    assert_eq!(service.post("/v1/decisions", &body(3, false)).body["remaining"], 2);
    let never = service.post("/v1/decisions", &body(6, false)).body;
    assert_eq!((&never["allowed"], &never["retry_after_ms"]), (&json!(false), &Value::Null));
    let refunded = service.post("/v1/refunds", &body(2, false));
    assert_eq!(refunded.body, json!({"policies": ["per-client", "trial"]}));
    assert_eq!(service.post("/v1/decisions", &body(0, false)).body["remaining"], 4);
    assert_eq!(service.post("/v1/decisions", &body(1_000_000_001, false)).status, 422);
}

#[test]
fn a_batch_is_decided_in_order_or_refused_whole() {
    let service = two_policies();
    let item = json!({"attributes": {"client_id": "a"}, "cost": 2});
    let answer = service.post("/v1/decisions", &json!([item, item, item]).to_string()).body;
    let allowed: Vec<bool> =
        answer.as_array().unwrap().iter().map(|one| one["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, true, false]);
    let bad = json!({"attributes": {"client_id": "a"}, "cost": 1_000_000_001});
    let fresh = json!({"attributes": {"client_id": "fresh"}});
    assert_eq!(service.post("/v1/decisions", &json!([fresh, bad]).to_string()).status, 422);
    let after = json!({"attributes": {"client_id": "fresh"}, "cost": 0}).to_string();
    assert_eq!(service.post("/v1/decisions", &after).body["remaining"], 5, "nothing was charged");
}

#[test]
fn a_request_that_no_policy_applies_to_is_allowed_and_says_so() {
    let service = two_policies();
    let answer = service.post("/v1/decisions", r#"{"attributes":{"other":"x"}}"#);
    assert_eq!(answer.body, json!({"allowed": true, "no_match": true, "policies": []}));
    assert!(!answer.headers.contains_key("ratelimit"));
}

#[test]
fn permits_are_acquired_renewed_released_and_found_by_their_text() {
    let slots = json!({"name": "slots", "algorithm": "concurrency", "limit": 2, "lease_seconds": 30});
    let service = start_with(policies(&[slots]), None);
    let body = r#"{"attributes":{"client_id":"a","resource":"r"}}"#;
    let first = service.post("/v1/permits", body).body;
    let second = service.post("/v1/decisions", body).body;
    let (first, second) = (first["permit"].as_str().unwrap(), second["permit"].as_str().unwrap());
    assert_ne!(first, second);
    let denied = service.post("/v1/permits", body);
    assert_eq!((&denied.body["allowed"], &denied.body["permit"]), (&json!(false), &Value::Null));
    assert_eq!(service.post(&format!("/v1/permits/{first}/renew"), "").body, json!({"lease_ms": 30_000}));
    assert_eq!(service.delete(&format!("/v1/permits/{first}")).status, 204);
    assert_eq!(service.delete(&format!("/v1/permits/{first}")).status, 404);
    assert_eq!(service.post(&format!("/v1/permits/{first}/renew"), "").status, 404);
    assert_eq!(service.post("/v1/permits", body).body["allowed"], true);
    assert_eq!(service.delete("/v1/permits/nonsense").status, 422);
    assert_eq!(service.post("/v1/permits", r#"{"attributes":{"other":"a"}}"#).status, 404);
}

#[test]
fn explain_says_which_policy_applies_and_why_not_the_others_or_counts_these() {
    let service = two_policies();
    service.put("/v1/clients/vip/limits", r#"{"per-client":{"limit":50}}"#);
    let answer = service.get("/v1/explain?client_id=vip&method=GET&path=/pay&cost=7").body;
    assert_eq!((&answer["allowed"], &answer["revision"]), (&json!(true), &json!(1)));
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(policies[0]["own_limits"]["limit"], 50);
    assert_eq!(policies[0]["verdict"]["remaining"], 43, "the burst follows the limit, as in the policy");
    assert_eq!((&policies[1]["applies"], &policies[1]["because_of"]), (&json!(false), &json!("method")));
    assert_eq!(service.get("/v1/explain?client_id=a&cost=many").status, 422);
    let path = "/v1/explain?client_id=a&method=GET&path=/pay";
    let answer = service.get(&format!("{path}&not_applying=0")).body;
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(
        (policies.len(), &policies[0]["applies"], &answer["not_listed"]),
        (2, &json!(true), &json!(1)),
        "per-client and trial apply"
    );
    let answer = service.get(&format!("{path}&not_applying=1")).body;
    assert_eq!((answer["policies"].as_array().unwrap().len(), &answer["not_listed"]), (3, &Value::Null));
    assert_eq!(service.get(&format!("{path}&not_applying=all")).status, 422);
}

#[test]
fn fault_20_two_administrators_edit_and_the_second_is_told() {
    let service = start();
    let listed = service.get("/v1/policies/default");
    assert_eq!((listed.status, listed.header("etag")), (200, "\"0\""));
    let edit = |limit: u64, tag: &str| {
        let body = json!({"limit": limit, "window_seconds": 60}).to_string();
        let headers = [("content-type", "application/json"), ("if-match", tag)];
        service.send("PUT", "/v1/policies/default", &headers, Some(body.as_bytes()))
    };
    let first = edit(10, "\"0\"");
    assert_eq!((first.status, first.header("etag")), (200, "\"1\""));
    assert_eq!(edit(20, "\"0\"").status, 412);
    assert_eq!(edit(20, "nonsense").status, 422);
    assert_eq!(service.get("/v1/policies/default").body["limit"], 10);
    assert_eq!(edit(20, "\"1\"").header("etag"), "\"2\"");
    assert_eq!(service.delete("/v1/policies/default").status, 204);
    assert_eq!(service.get("/v1/policies/default").body["limit"], 100, "the built-in one again");
    assert_eq!(service.delete("/v1/policies/default").status, 409);
    assert_eq!(service.delete("/v1/policies/nowhere").status, 404);
}

#[test]
fn every_change_is_in_the_audit_log() {
    let service = start();
    service.put("/v1/policies/tight", r#"{"limit":1,"window_seconds":1}"#);
    service.put("/v1/policies/tight", r#"{"limit":2,"window_seconds":1}"#);
    service.delete("/v1/policies/tight");
    let rows = service.get("/v1/audit?after=1&limit=10").body;
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["before"]["limit"], &rows[0]["after"]["limit"]), (&json!(1), &json!(2)));
    assert_eq!((&rows[1]["action"], &rows[1]["after"]), (&json!("delete"), &Value::Null));
    assert_eq!((&rows[0]["actor"], &rows[0]["from"]), (&json!("local"), &json!("127.0.0.1")));
    assert_eq!(service.get("/v1/audit?limit=0").status, 422);
}

#[test]
fn fault_14_every_mistake_of_a_policy_is_reported_with_its_place() {
    let service = start();
    let body = r#"{"name":"other","limit":18446744073709551615,"window_seconds":0,"burst":1,"colour":1,
                   "mode":"loud","algorithm":"sliding_log"}"#;
    assert_eq!(service.put("/v1/policies/tight", body).status, 422, "the name is another");
    let answer = service.put("/v1/policies/tight", &body.replace("\"name\":\"other\",", ""));
    let pointers: Vec<&str> = answer.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    for field in ["colour", "mode", "limit", "window_seconds", "burst"] {
        assert!(pointers.iter().any(|pointer| pointer.ends_with(field)), "{field} in {pointers:?}");
    }
    assert_eq!(service.get("/v1/policies/tight").status, 404);
}

#[test]
fn fault_45_without_the_token_nothing_is_read_or_changed() {
    let service = start_with(FileLayer::default(), Some("correct horse battery"));
    for (method, path) in [
        ("POST", "/api/v1/configure"),
        ("POST", "/api/v1/configure-client"),
        ("DELETE", "/api/v1/client-config/a"),
        ("GET", "/v1/policies"),
        ("PUT", "/v1/policies/default"),
        ("DELETE", "/v1/policies/default"),
        ("PUT", "/v1/clients/a/limits"),
        ("GET", "/v1/audit"),
        ("GET", "/v1/explain"),
    ] {
        for authorization in [None, Some("Bearer wrong"), Some("Bearer "), Some("correct horse battery")] {
            assert_eq!(service.without_token(method, path, authorization), 401, "{method} {path}");
        }
    }
    assert_eq!(service.get("/v1/policies").status, 200);
    assert_eq!(
        service.post("/api/v1/configure", r#"{"window_seconds":1,"request_per_window":1}"#).status,
        200
    );
    assert_eq!(service.get("/v1/audit").body[0]["actor"], "admin");
}

#[test]
fn check_speaks_to_proxies() {
    let service = start();
    service.put("/v1/policies/default", r#"{"limit":2,"window_seconds":60}"#);
    for _ in 0..2 {
        let answer = service.get("/v1/check");
        assert_eq!(answer.status, 204);
        assert!(answer.header("ratelimit").starts_with("\"default\";r="));
    }
    let denied = service.get("/v1/check");
    assert_eq!((denied.status, denied.header("content-type")), (429, "application/problem+json"));
    assert_eq!(denied.body["violated-policies"], json!(["default"]));
    assert!(denied.body["type"].as_str().unwrap().ends_with("#quota-exceeded"));
    assert_eq!(
        service.get("/v1/check?client_id=someone").status,
        400,
        "nothing says that the query names clients"
    );
    let spoofed = service.send("GET", "/v1/check", &[("x-forwarded-for", "9.9.9.9")], None);
    assert_eq!(spoofed.status, 429, "fault 48: nobody is trusted to say who the client is");
}

#[test]
fn fault_18_one_key_from_many_connections_is_admitted_exactly_to_the_limit() {
    let service = Arc::new(start());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let service = service.clone();
            thread::spawn(move || {
                let allowed = |_: &u32| {
                    let body = r#"{"client_id":"hot","resource":"r"}"#;
                    service.post("/api/v1/ratelimit", body).body["allowed"] == true
                };
                (0..50).filter(allowed).count()
            })
        })
        .collect();
    let admitted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(admitted, 100);
}

#[test]
fn fault_54_variants_of_a_path_meet_the_same_policy() {
    let pay = json!({"name": "pay", "key": [], "match": {"path": "/pay"}, "limit": 4, "window_seconds": 60});
    let service = start_with(policies(&[pay]), None);
    for (spent, path) in ["/pay", "//pay/", "/%70ay;x", "/a/../pay?q"].iter().enumerate() {
        let body = json!({"attributes": {"path": path}}).to_string();
        let answer = service.post("/v1/decisions", &body).body;
        assert_eq!((&answer["policy"], &answer["remaining"]), (&json!("pay"), &json!(3 - spent)), "{path}");
    }
    let check = |uri: &str| service.send("GET", "/v1/check", &[("x-original-uri", uri)], None).status;
    assert_eq!((check("/./pay?a=b"), check("/other"), check("/a%2fpay")), (429, 204, 204));
}

#[test]
fn fault_53_the_most_denied_clients_are_listed_and_bounded() {
    let service = start();
    service.put("/v1/policies/default", r#"{"limit":1,"window_seconds":600}"#);
    for client in 0..150 {
        let asks = if client == 7 { 20 } else { 2 };
        for _ in 0..asks {
            service.post("/api/v1/ratelimit", &format!(r#"{{"client_id":"c{client}","resource":"r"}}"#));
        }
    }
    let listed = service.get("/v1/denied-clients").body;
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 128);
    assert_eq!((&listed[0]["client_id"], &listed[0]["denied"]), (&json!("c7"), &json!(19)));
}

#[test]
fn unknown_paths_and_methods_are_problems_too() {
    let service = start();
    let missing = service.get("/v2/nothing");
    assert_eq!((missing.status, missing.header("content-type")), (404, "application/problem+json"));
    let method = service.delete("/v1/policies");
    assert_eq!((method.status, method.header("content-type")), (405, "application/problem+json"));
    assert!(method.header("allow").contains("GET"));
    for hot in ["/v1/decisions", "/api/v1/ratelimit"] {
        let method = service.delete(hot);
        assert_eq!((method.status, method.header("allow")), (405, "POST"), "{hot}");
    }
}

#[test]
fn pointers_name_what_the_client_sent() {
    let service = start();
    let item = json!({"attributes": {"client_id": "a"}});
    let too_much = json!({"attributes": {"client_id": "a"}, "cost": 1_000_000_001});
    let decisions = "/v1/decisions";
    for (path, body, pointer) in [
        (decisions, &json!({"attributes": {"a/b": 1}}), "/attributes/a~1b"),
        (decisions, &json!([item, item, too_much]), "/2/cost"),
        (decisions, &json!([item, {"attributes": {"a": 1}}]), "/1/attributes/a"),
        ("/v1/refunds", &too_much, "/cost"),
        ("/api/v1/ratelimit", &json!({"client_id": "a", "resource": ""}), "/resource"),
    ] {
        let answer = service.post(path, &body.to_string()).body;
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{path} {body:.80}: {answer}");
    }
    let query = service.get("/v1/explain?client_id=a&cost=1000000001").body;
    assert_eq!(query["errors"][0]["pointer"], "/cost", "{query}");
    for (path, body, pointer) in [
        ("/v1/policies/mine", json!({"limit": 1, "window_seconds": 0}), "/window_seconds"),
        ("/v1/policies/mine", json!({"window_seconds": 1}), "/limit"),
        ("/v1/clients/a/limits", json!({"default": {"window_seconds": 0}}), "/default/window_seconds"),
        ("/v1/clients/a~b/limits", json!({"default": {"limit": -1}}), "/default/limit"),
    ] {
        let answer = service.put(path, &body.to_string()).body;
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{path} {body}: {answer}");
    }
}

#[test]
fn the_openapi_document_has_every_route() {
    let service = start();
    let document = service.get("/openapi.json").body;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let documents = DOCUMENTS.iter().flat_map(|resource| resource.paths());
    for template in TEMPLATES.into_iter().chain(ADMIN_TEMPLATES).chain(documents) {
        assert!(document["paths"][template].is_object(), "{template}");
    }
}
