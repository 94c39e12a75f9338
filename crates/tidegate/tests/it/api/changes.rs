//! Changes of the configuration over HTTP: what is set aside, what is refused, who overtakes whom.

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_algorithms::policy::parse;
use tidegate_algorithms::time::Wall;
use tidegate_control::{Author, Change, Control, Kind, Limits};
use tidegate_limiter::answers::Door;
use tidegate_limiter::policy_set::{FileLayer, OVERRIDE, POLICY};

use crate::api::support::{Running, start, start_in, start_with};

/// A data directory with these documents, put there unchecked.
fn stored(documents: &[(Kind, &str, Value)]) -> TempDir {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let changes: Vec<_> =
        documents.iter().map(|(kind, name, body)| Change::put(*kind, *name, body.to_string())).collect();
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    control.apply(&changes, &author).unwrap();
    data
}

fn file(documents: &[Value]) -> FileLayer {
    let policies = documents.iter().map(|document| parse(document, "").unwrap()).collect();
    FileLayer { policies, ..FileLayer::default() }
}

fn set_aside(service: &Running) -> Vec<String> {
    let listed = service.get("/v1/set-aside").body;
    let document = |it: &Value| format!("{} {}", it["kind"].as_str().unwrap(), it["name"].as_str().unwrap());
    listed["set_aside"].as_array().unwrap().iter().map(document).collect()
}

fn remaining(service: &Running, client: &str) -> Value {
    let ask = json!({"client_id": client, "resource": "r"}).to_string();
    service.post("/api/v1/ratelimit", &ask).body["remaining"].clone()
}

#[test]
fn fault_57_what_does_not_fit_is_set_aside_and_the_rest_is_in_force() {
    let data = stored(&[
        (POLICY, "broken", json!({"name": "broken", "limit": -1, "window_seconds": 1})),
        (POLICY, "alias", json!({"name": "default", "limit": 1, "window_seconds": 1})),
        // More than the sliding log of the built-in policy takes.
        (OVERRIDE, "vip", json!({"default": {"limit": 1_000_000, "window_seconds": 60}})),
        (OVERRIDE, "half", json!({"default": {"limit": 7}, "gone": {"limit": 1}})),
        (OVERRIDE, "list", json!([1])),
    ]);
    let service = start_in(data);
    let expected = ["override half", "override list", "override vip", "policy alias", "policy broken"];
    assert_eq!(set_aside(&service), expected);
    let listed = service.get("/v1/set-aside").body;
    let mistake = listed["set_aside"][2]["mistakes"][0].as_str().unwrap();
    assert!(mistake.starts_with("/override/vip/default/limit is 1000000"), "{mistake}");
    assert_eq!(remaining(&service, "vip"), 99, "as everyone");
    assert_eq!(remaining(&service, "half"), 6, "the part that fits is in force");

    // One part is mended; the other, which nobody touched, is no reason to refuse that.
    let own = r#"{"client_id":"half","window_seconds":60,"request_per_window":9}"#;
    assert_eq!(service.post("/api/v1/configure-client", own).status, 200);
    assert_eq!(service.put("/v1/clients/half/limits", r#"{"default":{"limit":5}}"#).status, 200);
    assert_eq!(service.put("/v1/policies/broken", r#"{"limit":1,"window_seconds":1}"#).status, 200);
    for path in ["/v1/policies/alias", "/v1/clients/list/limits", "/v1/clients/vip/limits"] {
        assert_eq!(service.delete(path).status, 204, "{path}");
    }
    assert_eq!(set_aside(&service), [""; 0]);
}

#[test]
fn fault_57_an_override_of_a_policy_that_is_not_there_is_refused() {
    let service = start_with(file(&[json!({"name": "api", "limit": 5, "window_seconds": 60})]), None);
    let own = r#"{"client_id":"vip","window_seconds":60,"request_per_window":1000000}"#;
    let answer = service.post("/api/v1/configure-client", own);
    // The simple API's documents name no policy, so there is no field to point at.
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("")));
    let answer = service.put("/v1/clients/vip/limits", r#"{"api":{"limit":6},"apy":{"limit":6}}"#);
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("/apy")));
    assert_eq!(service.get("/v1/clients/vip/limits").status, 404, "nothing is stored");
}

#[test]
fn fault_57_a_change_that_would_set_aside_what_is_in_force_is_refused() {
    let service = start();
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":5,"window_seconds":60}"#).status, 200);
    assert_eq!(service.put("/v1/clients/vip/limits", r#"{"api":{"window_seconds":30}}"#).status, 200);
    let slots = r#"{"algorithm":"concurrency","limit":5}"#;
    let answer = service.put("/v1/policies/api", slots);
    // The mistake is in another document than the one that was sent, so words say where.
    let mistake = &answer.body["errors"][0];
    assert_eq!((answer.status, &mistake["pointer"]), (422, &json!("")));
    let detail = mistake["detail"].as_str().unwrap();
    assert!(detail.starts_with("/override/vip/api/window_seconds "), "{detail}");
    // Without the policy, the override waits for its return.
    assert_eq!(service.delete("/v1/policies/api").status, 204);
    assert_eq!(set_aside(&service), ["override vip"]);
    assert_eq!(service.put("/v1/policies/api", slots).status, 422);
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":6,"window_seconds":60}"#).status, 200);
    assert_eq!(set_aside(&service), [""; 0]);
}

#[test]
fn fault_20_two_writers_of_one_document_lose_nothing() {
    const ROUNDS: u64 = 25;
    let service = Arc::new(start());
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":5,"window_seconds":60}"#).status, 200);
    let other = {
        let service = service.clone();
        thread::spawn(move || {
            for limit in 1..=ROUNDS {
                let own = json!({"client_id": "c", "window_seconds": 60, "request_per_window": limit});
                assert_eq!(service.post("/api/v1/configure-client", &own.to_string()).status, 200);
            }
        })
    };
    for limit in 1..=ROUNDS {
        // The second part is whatever is there.
        loop {
            let found = service.get("/v1/clients/c/limits");
            let mut document = if found.status == 200 { found.body.clone() } else { json!({}) };
            document["api"] = json!({ "limit": limit });
            let tag = if found.status == 200 { found.header("etag") } else { "\"0\"" };
            let headers = [("content-type", "application/json"), ("if-match", tag)];
            let body = document.to_string();
            let answer = service.send("PUT", "/v1/clients/c/limits", &headers, Some(body.as_bytes()));
            if answer.status == 200 {
                break;
            }
            assert_eq!(answer.status, 412, "{}", answer.body);
        }
    }
    other.join().unwrap();
    let log = service.get("/v1/audit?limit=1000").body;
    let mut changes = 0;
    for row in log.as_array().unwrap().iter().filter(|row| row["kind"] == "override") {
        let part = |side: &str, policy: &str| row[side][policy]["limit"].as_u64().unwrap_or(0);
        let moved = |policy: &str| part("after", policy) - part("before", policy);
        // Each change moves one part by one, and leaves the other as it was.
        assert_eq!(moved("default") + moved("api"), 1, "{row}");
        changes += 1;
    }
    assert_eq!(changes, 2 * ROUNDS);
}

#[test]
fn a_refused_policy_leaves_no_series() {
    let service = start();
    assert_eq!(service.put("/v1/policies/refused", r#"{"limit":-1,"window_seconds":60}"#).status, 422);
    let headers = [("content-type", "application/json"), ("if-match", "\"7\"")];
    let body = br#"{"limit":1,"window_seconds":60}"#;
    assert_eq!(service.send("PUT", "/v1/policies/refused", &headers, Some(body)).status, 412);
    let counted = service.engine.tallies().read();
    // Beside the policy, the limits that come with requests of the other protocols.
    let expected = ["CL.THROTTLE", "RLS", "THROTTLE", "default"];
    assert_eq!(counted.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), expected);
}

/// What the list says of whether requests have met each policy as it is.
fn asked(service: &Running) -> Vec<(String, bool)> {
    let listed = service.get("/v1/policies").body;
    let said = |it: &Value| {
        let name = it["policy"]["name"].as_str().unwrap();
        (name.to_owned(), it["asked_since_change"].as_bool().unwrap())
    };
    listed["policies"].as_array().unwrap().iter().map(said).collect()
}

#[test]
fn a_policy_that_no_request_met_since_its_change_is_told_from_one_that_was_met_before() {
    let of_file = |name: &str, limit: u64, path: &str| json!({"name": name, "limit": limit, "window_seconds": 60, "match": {"path": path}});
    let (web, app) = (of_file("web", 9, "/web"), of_file("app", 9, "/app"));
    let service = start_with(file(&[web.clone(), app.clone()]), None);
    let told = |web: bool, app: bool| vec![("web".to_owned(), web), ("app".to_owned(), app)];
    let ask = |path: &str, cost: u64| {
        let body = json!({"attributes": {"client_id": "a", "path": path}, "cost": cost}).to_string();
        assert_eq!(service.post("/v1/decisions", &body).status, 200);
    };
    assert_eq!(asked(&service), told(false, false));
    let one = service.get("/v1/policies?name=app").body;
    assert_eq!((&one["policies"][0]["policy"]["name"], &one["policies"][1]), (&json!("app"), &Value::Null));
    assert_eq!(service.get("/v1/policies?name=no-such").body["policies"], json!([]));
    ask("/app", 0);
    assert_eq!(asked(&service), told(false, false), "who only looks has not met it");
    ask("/web", 1);
    ask("/app", 1);
    assert_eq!(asked(&service), told(true, true));
    // A client's own limit, and a change of another policy, leave it as it is.
    assert_eq!(service.put("/v1/clients/a/limits", r#"{"web":{"limit":5}}"#).status, 200);
    let changed = of_file("app", 8, "/application").to_string();
    assert_eq!(service.put("/v1/policies/app", &changed).status, 200);
    assert_eq!(asked(&service), told(true, false), "nobody asks for that path");
    ask("/app", 1);
    assert_eq!(asked(&service), told(true, false));
    ask("/application", 1);
    assert_eq!(asked(&service), told(true, true));
    // Another file: one policy is as it was, and one is not.
    assert_eq!(service.delete("/v1/policies/app").status, 204);
    assert_eq!(asked(&service), told(true, false), "the file's is another than the stored one");
    ask("/app", 1);
    service.reload_policies(file(&[of_file("web", 7, "/web"), app]));
    assert_eq!(asked(&service), told(false, true));
}

#[test]
fn a_request_under_several_policies_is_one_decision() {
    let of_file = |name: &str, limit: u64, mode: &str| json!({"name": name, "limit": limit, "window_seconds": 60, "mode": mode});
    let file = file(&[of_file("a", 3, "enforce"), of_file("b", 9, "enforce"), of_file("c", 1, "shadow")]);
    let service = start_with(file, None);
    for _ in 0..5 {
        service.post("/api/v1/ratelimit", r#"{"client_id":"a","resource":"r"}"#);
    }
    let decided = service.engine.answers().read(Door::Http);
    assert_eq!((decided.allowed, decided.denied), (3, 2), "what is only looked at denies nothing");
    assert_eq!(service.engine.tallies().read().iter().map(|(_, count)| count.denied).sum::<u64>(), 2);
}
