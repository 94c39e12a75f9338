//! Where attributes come from, and what a client cannot change about it.

use serde_json::{Value, json};
use tidegate_algorithms::policy::{parse, parse_sources};
use tidegate_limiter::policy_set::{AttributeSources, FileLayer};

use crate::api::support::{Answer, Running, Setup, start, start_with};

/// A service with these policies and these sources for `/v1/check`.
fn file(policies: &[Value], sources: &Value) -> FileLayer {
    let (_, forms) = AttributeSources::PROTOCOLS[0];
    let check = parse_sources(sources, "", forms).unwrap();
    FileLayer {
        policies: policies.iter().map(|policy| parse(policy, "").unwrap()).collect(),
        sources: AttributeSources { check, ..AttributeSources::default() },
        ..FileLayer::default()
    }
}

/// One unit an hour for each value of `key`, where `path` is `/pay`.
fn once(key: &str) -> Value {
    json!({"name": "once", "key": [key], "match": {"path": "/pay*"}, "limit": 1, "window_seconds": 3600})
}

fn check(service: &Running, query: &str, fields: &[(&str, &str)]) -> Answer {
    service.send("GET", &format!("/v1/check{query}"), fields, None)
}

#[test]
fn fault_54_explanations_and_resets_speak_of_the_path_that_decisions_count() {
    let by_path = json!({"name": "by-path", "key": ["client_id", "path"], "match": {"path": "/pay*"}, "limit": 1,
                         "window_seconds": 60});
    let service = start_with(file(&[by_path], &json!({})), None);
    let sent = json!({"attributes": {"client_id": "a", "path": "//%70ay/x"}}).to_string();
    let decided = || service.post("/v1/decisions", &sent).body;
    assert_eq!((&decided()["policy"], &decided()["allowed"]), (&json!("by-path"), &json!(false)));
    // The same spelling in a query, and another one of the same path.
    for path in ["//%2570ay/x", "/pay/./x"] {
        let explained = service.get(&format!("/v1/explain?client_id=a&path={path}")).body;
        assert_eq!(explained["allowed"], false, "{path}: {explained}");
        let limits = "%7B%22limit%22:1,%22window_seconds%22:60%7D";
        let explained = service.get(&format!("/v1/explain?client_id=a&path={path}&limits={limits}")).body;
        let found = (&explained["allowed"], &explained["request_limits"]["decide"]);
        assert_eq!(found, (&json!(false), &json!(false)), "{path}: {explained}");
    }
    let reset = service.delete("/v1/clients/a/usage?path=/pay/./x").body;
    assert!(reset["reset"].as_array().unwrap().contains(&json!("by-path")), "{reset}");
    assert_eq!(decided()["allowed"], true);
}

#[test]
fn fault_59_a_client_cannot_add_an_attribute_to_a_query_that_carries_its_key() {
    let service = start_with(file(&[once("client_id")], &json!({"client_id": {"query": "client"}})), None);
    let pay = [("x-original-uri", "/pay")];
    assert_eq!(check(&service, "?client=k1", &pay).status, 204);
    assert_eq!(check(&service, "?client=k1", &pay).status, 429);
    // A proxy that interpolates the client's key without escaping it, and a key that uses this.
    for query in ["?client=k1&path=/free", "?client=k1&client=k2", "?client=k1&client_id=k2", "?path=/free"] {
        let refused = check(&service, query, &pay);
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().starts_with("the parameter "), "{}", refused.body);
    }
    assert_eq!(check(&service, "?client=k2", &pay).status, 204, "nobody else was charged");
}

#[test]
fn fault_59_headers_of_the_kind_that_is_not_configured_change_nothing() {
    let service = start_with(file(&[once("client_id")], &json!({})), None);
    let pay = ("x-original-uri", "/pay");
    assert_eq!(check(&service, "", &[pay]).status, 204);
    assert_eq!(check(&service, "", &[pay]).status, 429);
    for forged in ["x-forwarded-uri", "x-forwarded-method", "x-original-uri"] {
        assert_eq!(check(&service, "", &[pay, (forged, "/free")]).status, 400, "{forged}");
    }
    let alone = check(&service, "", &[("x-forwarded-uri", "/pay")]);
    assert_eq!((alone.status, alone.header("tidegate-no-match")), (204, "allowed"), "it is not believed");
}

#[test]
fn attributes_come_from_the_sources_that_are_configured_for_them() {
    let policies = ["tenant", "key", "session", "who"].map(|name| {
        json!({"name": name, "key": [name], "limit": 1, "window_seconds": 3600,
               "match": {"path": format!("/{name}/*")}})
    });
    let sources = json!({
        "tenant": {"path_part": 2}, "key": {"header": "X-Api-Key"}, "session": {"cookie": "sid"}, "who": "address",
    });
    let service = start_with(file(&policies, &sources), None);
    let ask = |path: &str, field: (&str, &str)| {
        let answer = check(&service, "", &[("x-original-uri", path), field]);
        (answer.status, answer.header("tidegate-no-match").to_owned())
    };
    let (allowed, denied) = ((204, String::new()), (429, String::new()));
    let unmatched = (204, "allowed".to_owned());
    for (path, field, expected) in [
        ("/tenant/a/x", ("x-api-key", "1"), &allowed),
        ("/tenant//a;v=1/y", ("x-api-key", "2"), &denied),
        ("/tenant/b", ("x-api-key", "2"), &allowed),
        ("/key/a", ("x-api-key", "1"), &allowed),
        ("/key/b", ("x-api-key", "1"), &denied),
        ("/key/b", ("x-api-key", "2"), &allowed),
        ("/key/b", ("x-other-key", "2"), &unmatched),
        ("/key/b", ("x-api-key", ""), &unmatched),
        ("/session/a", ("cookie", "theme=dark; sid=1"), &allowed),
        ("/session/a", ("cookie", "sid=1"), &denied),
        ("/session/a", ("cookie", "sid=2"), &allowed),
        ("/who/a", ("x-api-key", "1"), &allowed),
        ("/who/a", ("x-api-key", "2"), &denied),
    ] {
        assert_eq!(&ask(path, field), expected, "{path} {field:?}");
    }
    let twice = [("x-original-uri", "/key/a"), ("x-api-key", "7"), ("x-api-key", "8")];
    assert_eq!(check(&service, "", &twice).status, 400);
}

#[test]
fn a_client_without_the_key_that_names_it_is_its_address() {
    let service =
        start_with(file(&[once("client_id")], &json!({"client_id": {"header": "x-api-key"}})), None);
    let pay = ("x-original-uri", "/pay");
    assert_eq!(check(&service, "", &[pay, ("x-api-key", "a")]).status, 204);
    assert_eq!(check(&service, "", &[pay]).status, 204);
    assert_eq!(check(&service, "", &[pay]).status, 429);
    assert_eq!(check(&service, "", &[pay, ("x-api-key", "")]).status, 429);
}

#[test]
fn fault_54_a_path_from_a_configured_source_has_one_form_too() {
    let service = start_with(file(&[once("client_id")], &json!({"path": {"query": "path"}})), None);
    let statuses =
        ["?path=//pay", "?path=/%2570ay", "?path=/a/../pay", "?path=/..%252fpay", "?path=/a%252fb"]
            .map(|query| check(&service, query, &[]).status);
    assert_eq!(statuses, [204, 429, 429, 429, 204]);
}

#[test]
fn what_is_there_twice_refuses_only_where_a_policy_looks_at_it() {
    let twice = [("x-original-uri", "/pay"), ("cookie", "sid=1; sid=2")];
    for (key, status) in [("client_id", 204), ("session", 400)] {
        let sources = json!({"session": {"cookie": "sid"}});
        let service = start_with(file(&[once(key)], &sources), None);
        assert_eq!(check(&service, "", &twice).status, status, "{key}");
    }
}

/// Servers read these differently: a policy for `/pay` applies to what one of them takes for it, and nobody is refused
/// for the doubt.
#[test]
fn fault_54_a_path_in_doubt_is_counted_by_every_reading() {
    let pay = json!({"name": "pay", "key": [], "match": {"path": "/pay"}, "limit": 1, "window_seconds": 60});
    let service = start_with(file(&[pay], &json!({})), None);
    let check = |uri: &str| check(&service, "", &[("x-original-uri", uri)]).status;
    assert_eq!(check("/pay"), 204);
    for of_pay in
        ["/..%2fpay", "/x%5c..%5cpay", "/pay%00.html", "/../pay", "http://a/pay", "/pay%2f", "/pay#x"]
    {
        assert_eq!(check(of_pay), 429, "{of_pay}");
        let answer = service.post("/v1/decisions", &json!({"attributes": {"path": of_pay}}).to_string());
        assert_eq!((answer.status, &answer.body["allowed"]), (200, &json!(false)), "{of_pay}");
    }
    for other in ["/projects/a%2Fb", "/a%zz", "/a%", "*", "/50%25", "/pay%252f"] {
        assert_eq!(check(other), 204, "{other}");
        let answer = service.post("/v1/decisions", &json!({"attributes": {"path": other}}).to_string());
        assert_eq!((answer.status, &answer.body["no_match"]), (200, &json!(true)), "{other}");
    }
}

/// Most frameworks route by a dot segment as by any name: `/api/../x` reaches a handler of `/api/*`.
#[test]
fn fault_54_a_dot_segment_is_counted_as_a_name_too() {
    let api =
        json!({"name": "api", "key": [], "match": {"path": "/api/*"}, "limit": 1, "window_seconds": 60});
    let service = start_with(file(&[api], &json!({})), None);
    let check = |uri: &str| check(&service, "", &[("x-original-uri", uri)]).status;
    assert_eq!(check("/api/a"), 204);
    for of_api in ["/api/../x", "/api/%2e%2e/x", "/api%2f..%2fx", "/x/../api/b"] {
        assert_eq!(check(of_api), 429, "{of_api}");
        let answer = service.post("/v1/decisions", &json!({"attributes": {"path": of_api}}).to_string());
        assert_eq!((answer.status, &answer.body["allowed"]), (200, &json!(false)), "{of_api}");
    }
    for other in ["/x/../y", "/..api/x", "/api"] {
        assert_eq!(check(other), 204, "{other}");
    }
}

#[test]
fn a_path_that_no_policy_looks_at_is_not_refused() {
    let long = format!("/{}", "a".repeat(600));
    for path in [&long, "/a%2fb"] {
        let service = start();
        assert_eq!(check(&service, "", &[("x-original-uri", path)]).status, 204, "{path:.20}");
        // Nor where a policy looks at it that does not apply.
        let service = start_with(file(&[once("client_id")], &json!({})), None);
        assert_eq!(check(&service, "", &[("x-original-uri", path)]).status, 204, "{path:.20}");
    }
}

#[test]
fn fault_58_a_request_that_no_policy_applies_to_is_said_so_and_counted() {
    let service = start_with(file(&[once("client_id")], &json!({})), None);
    let simple = service.post("/api/v1/ratelimit", r#"{"client_id":"a","resource":"r"}"#);
    assert_eq!((simple.status, &simple.body), (200, &json!({"allowed": true, "no_match": true})));
    assert_eq!(simple.header("tidegate-no-match"), "allowed");
    let general = service.post("/v1/decisions", r#"{"attributes":{"client_idd":"a","path":"/pay"}}"#);
    assert_eq!(general.body, json!({"allowed": true, "no_match": true, "policies": []}));
    let checked = check(&service, "", &[("x-original-uri", "/free")]);
    assert_eq!((checked.status, checked.header("tidegate-no-match")), (204, "allowed"));
    assert_eq!(service.get("/v1/explain?client_id=a").body["no_match"], true);
    let counted = service.engine.unmatched();
    assert_eq!((counted.allowed, counted.denied), (3, 0), "an explanation is no request");

    let matched = service.post("/v1/decisions", r#"{"attributes":{"client_id":"a","path":"/pay"}}"#);
    assert!(matched.body["no_match"].is_null() && matched.header("tidegate-no-match").is_empty());
}

#[test]
fn fault_58_on_no_match_deny_denies_what_no_policy_applies_to() {
    let service =
        Setup { file: file(&[once("client_id")], &json!({})), on_no_match: "deny", ..Setup::default() }
            .start();
    let simple = service.post("/api/v1/ratelimit", r#"{"client_id":"a","resource":"r"}"#);
    assert_eq!((simple.status, &simple.body), (200, &json!({"allowed": false, "no_match": true})));
    let checked = check(&service, "", &[("x-original-uri", "/free")]);
    assert_eq!((checked.status, checked.header("tidegate-no-match")), (403, "denied"));
    assert!(checked.body["detail"].as_str().unwrap().contains("no policy applies"), "{}", checked.body);
    assert_eq!(check(&service, "", &[("x-original-uri", "/pay")]).status, 204);
    let counted = service.engine.unmatched();
    assert_eq!((counted.allowed, counted.denied), (0, 2));
}

#[test]
fn a_path_at_which_no_policy_looks_may_have_any_form() {
    let service = start();
    for path in ["/a%2Fb", "/100%", "*", ""] {
        let body = json!({"attributes": {"client_id": "a", "path": path}}).to_string();
        for route in ["/v1/decisions", "/v1/refunds"] {
            let answer = service.post(route, &body);
            assert_eq!(answer.status, 200, "{route} {path}: {}", answer.body);
        }
    }
}
