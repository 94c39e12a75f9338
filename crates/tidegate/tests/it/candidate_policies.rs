//! Policies in a candidate, at the built binary: judged on the decisions that are made, by counters of their own, with examples;
//! promoted with the rest, or dropped.

use std::fs;

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;

use crate::support::edge::metric;
use crate::support::{Tidegate, agent};

/// A policy in the file that allows as many a day.
fn start(limit: u64, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         route = [{{ name = \"app\", path = \"/app/*\", respond = {{}} }}]\n\
         [[policy]]\nname = \"calls\"\nalgorithm = \"sliding_log\"\nlimit = {limit}\nwindow_seconds = 86400\nkey = [\"client_id\"]\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

/// A policy that allows as many a day to each client.
fn policy(name: &str, limit: u64) -> Value {
    json!({"name": name, "algorithm": "sliding_log", "limit": limit, "window_seconds": 86400, "key": ["client_id"]})
}

fn call(service: &Tidegate, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(service.url(path));
    let request = request.header("content-type", "application/json");
    let body = body.map(ToString::to_string).unwrap_or_default();
    let mut reply = agent().run(request.body(body).unwrap()).unwrap();
    let text = reply.body_mut().read_to_string().unwrap();
    (reply.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
}

fn put(service: &Tidegate, candidate: &Value) {
    let (status, said) = call(service, "PUT", "/v1/candidate", Some(candidate));
    assert_eq!(status, 200, "{said}");
}

/// What was found by the candidate's policies.
fn limits(service: &Tidegate) -> Value {
    let (status, found) = call(service, "GET", "/v1/candidate", None);
    assert_eq!((status, &found["mistakes"]), (200, &json!([])), "{found}");
    found["limits"].clone()
}

/// Whether a decision about a client is to let it through, and what remains.
fn decide(service: &Tidegate, client: &str) -> (bool, Value) {
    let body = json!({"attributes": {"client_id": client}});
    let (_, said) = call(service, "POST", "/v1/decisions", Some(&body));
    (said["allowed"].as_bool().unwrap(), said["remaining"].clone())
}

fn promote(service: &Tidegate, judged: u64) -> (u16, Value) {
    call(service, "POST", &format!("/v1/candidate/promote?judged={judged}"), None)
}

fn differences(same: u64, would_limit: u64, would_allow: u64) -> Value {
    json!({"same": same, "would_limit": would_limit, "would_allow": would_allow})
}

#[test]
fn a_new_policy_that_would_limit_is_counted_and_nothing_in_force_is_charged_for_it() {
    let service = start(100, &[]);
    put(&service, &json!({"policy": [policy("burst", 2)]}));
    let remaining: Vec<_> = (0..5).map(|_| decide(&service, "a")).collect();
    assert_eq!(remaining, [99, 98, 97, 96, 95].map(|it| (true, json!(it))));
    assert!(decide(&service, "b").0, "another client");
    let found = limits(&service);
    assert_eq!((&found["decisions"], &found["by_difference"]), (&json!(6), &differences(3, 3, 0)));
    let example = json!({"difference": "would_limit", "policy": "burst", "protocol": "http", "client_id": "a",
        "attributes": "", "requests": 3});
    assert_eq!((&found["examples"], &found["without_example"]), (&json!([example]), &json!(0)));
    assert_eq!(call(&service, "GET", "/v1/candidate", None).1["judged"], Value::Null, "it has no routes");
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(page.contains("tidegate_candidate_decisions_total{difference=\"would_limit\"} 3\n"), "{page}");
    assert!(page.contains("tidegate_decisions_total{policy=\"calls\",result=\"allowed\"} 6\n"), "{page}");
    assert!(!page.contains("policy=\"burst\""), "it is in force nowhere");
    // One client's own numbers change neither side's policies, and the counts go on.
    let own = json!({"calls": {"limit": 50}});
    assert_eq!(call(&service, "PUT", "/v1/clients/a/limits", Some(&own)).0, 200);
    assert_eq!(decide(&service, "a"), (true, json!(44)), "by the requests that were made");
    assert_eq!(limits(&service)["by_difference"], differences(3, 4, 0));
}

#[test]
fn fault_54_a_candidate_meets_one_path_in_all_its_spellings_though_nothing_in_force_looks_at_it() {
    let service = start(100, &[]);
    put(
        &service,
        &json!({"policy": [{"name": "by-path", "algorithm": "sliding_log", "limit": 2,
        "window_seconds": 86400, "key": ["client_id", "path"]}]}),
    );
    for path in ["/pay", "//%70ay", "/x/../pay"] {
        let body = json!({"attributes": {"client_id": "a", "path": path}});
        assert_eq!(call(&service, "POST", "/v1/decisions", Some(&body)).1["allowed"], true);
    }
    assert_eq!(limits(&service)["by_difference"], differences(2, 1, 0));
}

#[test]
fn a_shared_store_never_hears_of_a_candidate() {
    let redis = RedisServer::start(&[]);
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let service = start(100, &[("TIDEGATE_STORE", &store), ("TIDEGATE_SHARED_DEADLINE", "60s")]);
    assert_eq!(decide(&service, "a"), (true, json!(99)));
    let keys = redis.command(&["keys", "*"]);
    put(&service, &json!({"policy": [policy("burst", 1), policy("calls", 200)]}));
    assert_eq!([(); 3].map(|()| decide(&service, "a")), [98, 97, 96].map(|it| (true, json!(it))));
    assert_eq!(limits(&service)["by_difference"], differences(1, 2, 0));
    assert_eq!(redis.command(&["keys", "*"]), keys, "the same counter, and no other");
}

#[test]
fn a_raised_limit_would_allow_what_is_denied_and_is_promoted_when_enough_was_judged() {
    let service = start(2, &[]);
    put(&service, &json!({"policy": [policy("calls", 5)]}));
    let allowed: Vec<bool> = (0..6).map(|_| decide(&service, "a").0).collect();
    assert_eq!(allowed, [true, true, false, false, false, false]);
    let found = limits(&service);
    assert_eq!(found["by_difference"], differences(3, 0, 3), "{found}");
    assert_eq!(
        (&found["examples"][0]["policy"], &found["examples"][0]["requests"]),
        (&json!("calls"), &json!(3))
    );
    let (status, problem) = promote(&service, 7);
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 412 && detail.contains("judged 6 decisions") && detail.contains("of 7 "), "{problem}");
    assert!(!decide(&service, "a").0, "nothing has changed");
    assert_eq!(promote(&service, 7).0, 200);
    assert_eq!(call(&service, "GET", "/v1/candidate", None).0, 404);
    assert_eq!(decide(&service, "a"), (true, json!(2)), "two were used");
}

#[test]
fn a_policy_that_would_go_is_judged_as_gone_and_goes_with_the_promotion() {
    let service = start(100, &[]);
    assert_eq!(call(&service, "PUT", "/v1/policies/tight", Some(&policy("tight", 1))).0, 200);
    put(&service, &json!({"remove": {"policy": ["tight"]}}));
    let allowed: Vec<bool> = (0..3).map(|_| decide(&service, "a").0).collect();
    assert_eq!(allowed, [true, false, false]);
    let found = limits(&service);
    assert_eq!(
        (&found["by_difference"], &found["examples"][0]["policy"]),
        (&differences(1, 0, 2), &json!("tight"))
    );
    assert_eq!(promote(&service, 3).0, 200);
    assert_eq!(call(&service, "GET", "/v1/policies/tight", None).0, 404);
    assert!(decide(&service, "a").0);
}

#[test]
fn a_route_is_judged_under_the_policies_that_the_candidate_lists_for_it() {
    let service = start(100, &[]);
    let ask =
        || agent().get(format!("http://{}/app/a?token=hidden", service.gateway[0])).call().unwrap().status();
    let route = json!({"name": "app", "path": "/app/*", "respond": {}, "policies": ["few"]});
    let mut few = policy("few", 1);
    few["key"] = json!(["ip", "path"]);
    put(&service, &json!({"policy": [few], "route": [route]}));
    assert_eq!([ask(), ask(), ask()].map(|status| status.as_u16()), [200, 200, 200]);
    let found = limits(&service);
    assert_eq!(found["by_difference"], differences(1, 2, 0), "{found}");
    let example = &found["examples"][0];
    assert_eq!((&example["policy"], &example["protocol"]), (&json!("few"), &json!("gateway")));
    assert_eq!(example["attributes"], "ip=127.0.0.1&path=%2Fapp%2Fa", "without the query");
    let (_, whole) = call(&service, "GET", "/v1/candidate", None);
    assert_eq!(whole["judged"]["by_difference"]["other_limits"], 3, "{whole}");
    assert_eq!(promote(&service, 4).0, 412);
    assert_eq!(promote(&service, 3).0, 200);
    assert_eq!([ask(), ask()].map(|status| status.as_u16()), [200, 429], "its own count begins now");
}

#[test]
fn a_client_that_is_reset_begins_anew_under_the_candidate_too_and_no_other_does() {
    let service = start(100, &[]);
    put(&service, &json!({"policy": [policy("burst", 1)]}));
    for client in ["a", "a", "b", "b"] {
        assert!(decide(&service, client).0);
    }
    assert_eq!(limits(&service)["by_difference"], differences(2, 2, 0));
    assert_eq!(call(&service, "DELETE", "/v1/clients/a/usage", None).0, 200);
    assert_eq!(decide(&service, "a"), (true, json!(99)));
    assert_eq!(limits(&service)["by_difference"], differences(3, 2, 0), "nothing was spent");
    assert!(decide(&service, "b").0);
    assert_eq!(limits(&service)["by_difference"], differences(3, 3, 0));
}

#[test]
fn a_candidate_that_is_dropped_leaves_no_counters() {
    let service = start(100, &[]);
    let bytes = || metric(&service, "tidegate_candidate_counters_bytes");
    assert_eq!(bytes(), 0);
    put(&service, &json!({"policy": [policy("burst", 1)]}));
    for client in 0..100 {
        decide(&service, &format!("client-{client}"));
    }
    decide(&service, "client-0");
    assert!(bytes() > 0 && limits(&service)["by_difference"]["would_limit"] == 1);
    assert_eq!(call(&service, "DELETE", "/v1/candidate", None).0, 204);
    assert_eq!(bytes(), 0);
    assert_eq!(metric(&service, "tidegate_candidate_decisions_total{difference=\"would_limit\"}"), 0);
    // The next one begins with nothing.
    put(&service, &json!({"policy": [policy("burst", 1)]}));
    decide(&service, "client-0");
    assert_eq!(limits(&service)["by_difference"], differences(1, 0, 0));
}

#[test]
fn policies_that_are_wrong_are_refused_with_their_places() {
    let service = start(100, &[]);
    let mut unknown = policy("p", 1);
    unknown["limt"] = json!(1);
    let nameless = json!({"limit": 1, "window_seconds": 1});
    for (body, place) in [
        (json!({"policy": [{"name": "p", "limit": -1, "window_seconds": 1}]}), "/policy/0/limit"),
        (json!({"policy": [policy("o", 1), unknown]}), "/policy/1/limt"),
        (json!({ "policy": [nameless] }), "/policy/0/name"),
        (json!({"policy": [policy("p", 1), policy("p", 2)]}), "/policy/1"),
        (json!({"policy": {}}), "/policy"),
        (json!({"remove": {"policy": ["calls"]}}), "/remove/policy/0"),
        (json!({"remove": {"policy": ["nothing"]}}), "/remove/policy/0"),
    ] {
        let (status, problem) = call(&service, "PUT", "/v1/candidate", Some(&body));
        let errors = problem["errors"].as_array().unwrap();
        assert!(status == 422 && errors.iter().any(|it| it["pointer"] == place), "{body}: {problem}");
    }
    assert_eq!(call(&service, "GET", "/v1/candidate", None).0, 404);
}

#[test]
fn a_promotion_undoes_nobodys_change_of_a_policy() {
    let service = start(100, &[]);
    assert_eq!(call(&service, "PUT", "/v1/policies/calls", Some(&policy("calls", 50))).0, 200);
    put(&service, &json!({"policy": [policy("calls", 5)]}));
    assert_eq!(call(&service, "PUT", "/v1/policies/calls", Some(&policy("calls", 60))).0, 200);
    assert_eq!(promote(&service, 0).0, 412, "it was changed since");
    assert_eq!(call(&service, "GET", "/v1/policies/calls", None).1["limit"], 60);
    put(&service, &json!({"policy": [policy("calls", 5)]}));
    assert_eq!(promote(&service, 0).0, 200);
    assert_eq!(call(&service, "GET", "/v1/policies/calls", None).1["limit"], 5);
}
