//! `/v1/session`: a cookie in the place of a token, for pages of this server and for nobody else's.

use serde_json::json;
use tidegate_access::tokens::{Credential, Scope};

use crate::api::support::{Answer, Running, Setup, start};

const NUMBERS: &str = r#"{"limit":5,"window_seconds":60}"#;

fn token(name: &str, scopes: &[Scope]) -> Credential {
    Credential::new(name, scopes.iter().copied(), &secret(name))
}

fn secret(name: &str) -> String {
    format!("the-secret-of-{name}")
}

fn guarded(tokens: Vec<Credential>) -> Running {
    Setup { tokens, ..Setup::default() }.start()
}

/// The cookie of a session of this token, as a browser sends it.
fn begin(service: &Running, name: &str) -> String {
    let bearer = format!("Bearer {}", secret(name));
    let begun = service.send("POST", "/v1/session", &[("authorization", &bearer)], None);
    assert_eq!((begun.status, &begun.body["name"]), (200, &json!(name)));
    let cookie = begun.header("set-cookie");
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "this listener has no TLS: {cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// A request by cookie from a page of `origin`.
fn by(service: &Running, cookie: &str, method: &str, path: &str, origin: &str) -> Answer {
    let mut fields = vec![("cookie", cookie), ("content-type", "application/json")];
    if !origin.is_empty() {
        fields.push(("origin", origin));
    }
    service.send(method, path, &fields, (method == "PUT").then_some(NUMBERS.as_bytes()))
}

#[test]
fn a_session_may_what_its_token_may_and_asks_for_no_decision() {
    let operator = token("operator", &[Scope::Decide, Scope::Read, Scope::Configure]);
    let service = guarded(vec![operator, token("reader", &[Scope::Read])]);
    let own = format!("http://{}", service.address);
    let (cookie, reader) = (begin(&service, "operator"), begin(&service, "reader"));
    assert_eq!(by(&service, &cookie, "GET", "/v1/policies", "").status, 200);
    assert_eq!(by(&service, &cookie, "PUT", "/v1/policies/api", &own).status, 200);
    assert_eq!(service.send("GET", "/v1/audit", &[("cookie", &reader)], None).body[0]["actor"], "operator");
    assert_eq!(by(&service, &reader, "GET", "/v1/policies", "").status, 200);
    assert_eq!(by(&service, &reader, "PUT", "/v1/policies/api", &own).status, 403);
    let who = by(&service, &cookie, "GET", "/v1/session", "").body;
    assert_eq!(who, json!({"name": "operator", "scopes": ["decide", "read", "configure"]}));
    // A proxy passes its client's cookies on: they are no token there.
    assert_eq!(by(&service, &cookie, "GET", "/v1/check", "").status, 401);
    // A token that is sent counts, and not the cookie beside it.
    let both = [("cookie", cookie.as_str()), ("authorization", "Bearer nothing-that-is-known")];
    assert_eq!(service.send("GET", "/v1/policies", &both, None).status, 401);
}

#[test]
fn fault_51_a_sessions_cookie_is_good_from_this_servers_own_pages_only() {
    let service = guarded(vec![token("operator", &[Scope::Read, Scope::Configure])]);
    let cookie = begin(&service, "operator");
    let own = format!("http://{}", service.address);
    for origin in ["http://attacker.example", "http://127.0.0.1:1", "null"] {
        for (method, path) in [
            ("GET", "/v1/policies"),
            ("PUT", "/v1/policies/api"),
            ("DELETE", "/v1/session"),
            ("GET", "/v1/session"),
        ] {
            assert_eq!(by(&service, &cookie, method, path, origin).status, 403, "{method} {path} {origin}");
        }
    }
    assert_eq!(by(&service, &cookie, "PUT", "/v1/policies/api", "").status, 403, "no origin is named");
    assert_eq!(by(&service, &cookie, "GET", "/v1/policies", &own).status, 200);
    assert_eq!(service.get("/v1/session").status, 401);
    let log = service.send("GET", "/v1/audit", &[("cookie", &cookie)], None);
    assert_eq!(log.body, json!([]), "nothing was changed");
}

#[test]
fn a_session_ends_by_request_and_with_its_token() {
    let (first, second) =
        (token("first", &[Scope::Read, Scope::Configure]), token("second", &[Scope::Read, Scope::Configure]));
    let service = guarded(vec![first, second.clone()]);
    let own = format!("http://{}", service.address);
    let read = |cookie: &str| by(&service, cookie, "GET", "/v1/policies", "").status;
    let (revoked, kept, ended) =
        (begin(&service, "first"), begin(&service, "second"), begin(&service, "second"));
    assert_eq!([read(&revoked), read(&kept), read(&ended)], [200; 3]);
    let over = by(&service, &ended, "DELETE", "/v1/session", &own);
    assert_eq!(over.status, 204);
    assert!(over.header("set-cookie").contains("Max-Age=0"), "{:?}", over.headers);
    service.reload_tokens([second]);
    assert_eq!([read(&revoked), read(&kept), read(&ended)], [401, 200, 401]);
    // Of another secret with the same name and scopes it is not a session either.
    let renewed = Credential::new("second", [Scope::Read, Scope::Configure], "another-secret-of-16");
    service.reload_tokens([renewed]);
    assert_eq!(read(&kept), 401);
}

#[test]
fn without_tokens_there_is_nothing_to_begin_a_session_of() {
    let service = start();
    for method in ["GET", "POST"] {
        let who = service.send(method, "/v1/session", &[], None);
        assert_eq!((who.status, &who.body["name"]), (200, &json!("local")), "{method}");
        assert!(!who.headers.contains_key("set-cookie"));
    }
    let scopes = [Scope::Decide, Scope::Refund, Scope::Ingest];
    let guarded = guarded(vec![token("operator", &[Scope::Configure]), token("application", &scopes)]);
    let bearer = format!("Bearer {}", secret("application"));
    let refused = guarded.send("POST", "/v1/session", &[("authorization", &bearer)], None);
    assert_eq!((refused.status, refused.header("set-cookie")), (403, ""), "it would be good for nothing");
    for bearer in ["", "Bearer ", "Bearer nothing-that-is-known"] {
        let refused = guarded.send("POST", "/v1/session", &[("authorization", bearer)], None);
        assert_eq!((refused.status, refused.header("set-cookie")), (401, ""));
    }
}
