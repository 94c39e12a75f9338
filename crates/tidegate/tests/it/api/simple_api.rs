//! The simple API, exactly as its clients know it.

use serde_json::json;
use tidegate_algorithms::policy::counted;
use tidegate_limiter::policy_set::FileLayer;

use crate::api::support::{start, start_with};

const ASK: &str = r#"{"client_id":"user123","resource":"api_call"}"#;

#[test]
fn health_is_ok() {
    let service = start();
    let answer = service.get("/api/v1/health");
    assert_eq!((answer.status, answer.body), (200, json!({"status": "ok"})));
}

#[test]
fn a_hundred_are_allowed_and_the_next_is_told_when() {
    let service = start();
    for spent in 1..=100 {
        let answer = service.post("/api/v1/ratelimit", ASK);
        assert_eq!((answer.status, answer.body), (200, json!({"allowed": true, "remaining": 100 - spent})));
    }
    let answer = service.post("/api/v1/ratelimit", ASK);
    assert_eq!(answer.status, 200);
    assert_eq!((&answer.body["allowed"], &answer.body["remaining"]), (&json!(false), &json!(0)));
    let seconds = answer.body["retry_after"].as_u64().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(answer.header("retry-after"), seconds.to_string());
    assert_eq!(answer.header("ratelimit-policy"), "\"default\";q=100;w=60");
    assert_eq!(answer.header("ratelimit"), format!("\"default\";r=0;t={seconds}"));
    let other = service.post("/api/v1/ratelimit", r#"{"client_id":"other","resource":"api_call"}"#);
    assert_eq!(other.body, json!({"allowed": true, "remaining": 99}));
}

#[test]
fn one_client_can_have_limits_of_its_own_and_lose_them_again() {
    let service = start();
    let own = r#"{"client_id":"vip user/7","window_seconds":30,"request_per_window":500}"#;
    let answer = service.post("/api/v1/configure-client", own);
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("ok")));
    let expected =
        json!({"client_id": "vip user/7", "window_seconds": 30, "request_per_window": 500, "custom": true});
    assert_eq!(service.get("/api/v1/client-config/vip%20user%2F7").body, expected);
    let ask = r#"{"client_id":"vip user/7","resource":"r"}"#;
    assert_eq!(service.post("/api/v1/ratelimit", ask).body["remaining"], 499);
    assert_eq!(service.delete("/api/v1/client-config/vip%20user%2F7").status, 200);
    let expected =
        json!({"client_id": "vip user/7", "window_seconds": 60, "request_per_window": 100, "custom": false});
    assert_eq!(service.get("/api/v1/client-config/vip%20user%2F7").body, expected);
    assert_eq!(service.post("/api/v1/ratelimit", ask).body["remaining"], 98, "what was used is kept");
    assert_eq!(service.delete("/api/v1/client-config/vip%20user%2F7").status, 200, "deleting twice is fine");
}

#[test]
fn everyones_limit_can_be_changed_without_a_refill() {
    let service = start();
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["remaining"], 99);
    let answer = service.post("/api/v1/configure", r#"{"window_seconds":600,"request_per_window":3}"#);
    assert_eq!(answer.status, 200);
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["remaining"], 1);
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["remaining"], 0);
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["allowed"], false);
}

#[test]
fn limits_that_the_log_cannot_hold_are_counted_and_smaller_ones_are_logged_again() {
    let service = start();
    let configure = |limit: u64| {
        let body = json!({"window_seconds": 60, "request_per_window": limit}).to_string();
        let answer = service.post("/api/v1/configure", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        service.get("/v1/policies/default").body
    };
    let own = r#"{"client_id":"vip","window_seconds":60,"request_per_window":1000000}"#;
    assert_eq!(service.post("/api/v1/configure-client", own).status, 200);
    let many = configure(1_000_000_000);
    assert_eq!((&many["algorithm"], &many["limit"]), (&json!("sliding_counter"), &json!(1_000_000_000)));
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["remaining"], 999_999_999);
    let few = configure(4_096);
    assert_eq!((&few["algorithm"], &few["limit"]), (&json!("sliding_log"), &json!(4_096)));
    let vip = r#"{"client_id":"vip","resource":"r"}"#;
    assert_eq!(service.post("/api/v1/ratelimit", vip).body["remaining"], 999_999);
}

#[test]
fn bad_bodies_are_refused_with_the_field_and_charge_nothing() {
    let service = start();
    for (body, status, pointer) in [
        ("", 400, None),
        ("{\"client_id\":\"user123\",\"resource\":\"a\"", 400, None),
        ("{\"client_id\":\"a\",\"client_id\":\"user123\",\"resource\":\"a\"}", 400, None),
        ("[]", 422, Some("")),
        ("{\"client_id\":\"user123\"}", 422, Some("/resource")),
        ("{\"client_id\":7,\"resource\":\"a\"}", 422, Some("/client_id")),
        ("{\"client_id\":\"\",\"resource\":\"a\"}", 400, Some("/client_id")),
        ("{\"client_id\":\"user123\",\"resource\":\"\"}", 400, Some("/resource")),
    ] {
        let answer = service.post("/api/v1/ratelimit", body);
        assert_eq!(answer.status, status, "{body:.80}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.body["status"], status);
        assert_eq!(answer.body["errors"][0]["pointer"].as_str(), pointer, "{}", answer.body);
    }
    let plain =
        service.send("POST", "/api/v1/ratelimit", &[("content-type", "text/plain")], Some(ASK.as_bytes()));
    assert_eq!(plain.status, 415);
    let json = ("content-type", "application/json; charset=utf-8");
    let zipped = service.send(
        "POST",
        "/api/v1/ratelimit",
        &[json, ("content-encoding", "gzip")],
        Some(ASK.as_bytes()),
    );
    assert_eq!(zipped.status, 415);
    let huge = service.post("/api/v1/ratelimit", &" ".repeat(70_000));
    assert_eq!((huge.status, huge.header("content-type")), (413, "application/problem+json"));
    assert_eq!(huge.header("connection"), "close", "its body was not read to the end");
    assert_eq!(service.post("/api/v1/ratelimit", ASK).body["remaining"], 99);
}

#[test]
fn fault_12_a_long_key_is_counted_and_a_megabyte_is_refused_by_the_bodys_limit() {
    let service = start_with(FileLayer::default(), None);
    let ask =
        |key: &str| service.post("/api/v1/ratelimit", &format!(r#"{{"client_id":"{key}","resource":"r"}}"#));
    let long = "k".repeat(60_000);
    assert_eq!(
        (ask(&long).body["remaining"].as_u64(), ask(&long).body["remaining"].as_u64()),
        (Some(99), Some(98))
    );
    assert_eq!(ask(&format!("{long}x")).body["remaining"], 99, "another one");
    // As a client library would have sent it.
    let bounded = String::from_utf8(counted(long.as_bytes()).into_owned()).unwrap();
    assert_eq!(ask(&bounded).body["remaining"], 97);
    assert_eq!(ask(&"k".repeat(1 << 20)).status, 413);
}

#[test]
fn fault_13_names_are_opaque_and_never_normalised() {
    let service = start();
    for client in [r"a\u0000b", r"a\r\nset-cookie: x", "\u{e9}", "e\u{301}"] {
        let answer =
            service.post("/api/v1/ratelimit", &format!(r#"{{"client_id":"{client}","resource":"r"}}"#));
        assert_eq!(answer.body, json!({"allowed": true, "remaining": 99}), "{client}");
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    let bytes = service.send(
        "POST",
        "/api/v1/ratelimit",
        &[("content-type", "application/json")],
        Some(b"{\"client_id\":\"\xff\",\"resource\":\"r\"}"),
    );
    assert_eq!(bytes.status, 400);
}

#[test]
fn fault_15_numbers_out_of_range_are_refused_where_they_are() {
    let service = start();
    for (body, status, pointer) in [
        (r#"{"window_seconds":0,"request_per_window":1}"#, 422, Some("/window_seconds")),
        (r#"{"window_seconds":-1,"request_per_window":1}"#, 422, Some("/window_seconds")),
        (r#"{"window_seconds":1e400,"request_per_window":1}"#, 422, Some("/window_seconds")),
        (r#"{"window_seconds":1.5,"request_per_window":1}"#, 422, Some("/window_seconds")),
        (
            r#"{"window_seconds":60,"request_per_window":18446744073709551615}"#,
            422,
            Some("/request_per_window"),
        ),
        (r#"{"window_seconds":60,"request_per_window":1000000001}"#, 422, Some("/request_per_window")),
        (r#"{"window_seconds":60,"window_seconds":60,"request_per_window":1}"#, 400, None),
        (r#"[60,1]"#, 422, Some("")),
        (r#"{"window_seconds":60,"request_per_window":NaN}"#, 400, None),
        (r#"{"window_seconds":60,"request_per_window":1,"more":1}"#, 422, Some("/more")),
    ] {
        let answer = service.post("/api/v1/configure", body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.body["errors"][0]["pointer"].as_str(), pointer, "{body}: {}", answer.body);
    }
    assert_eq!(
        service.post("/api/v1/configure", r#"{"window_seconds":1,"request_per_window":0}"#).status,
        200
    );
    let denied = service.post("/api/v1/ratelimit", ASK);
    assert_eq!(denied.body["allowed"], false, "a limit of 0 denies everything");
    assert_eq!(denied.body["retry_after"], 1, "by its window, for a wait that never ends");
}
