//! Who may do what over HTTP: tokens and their scopes, requests of other sites' pages, CORS.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use tidegate_access::openapi;
use tidegate_access::origins::TrustedOrigins;
use tidegate_access::tokens::{Credential, Scope};
use tidegate_admin::api::{DOCUMENTS, TEMPLATES as ADMIN_TEMPLATES};
use tidegate_limiter::http::TEMPLATES;

use crate::api::support::{Answer, Running, Setup, start};

const ASK: &str = r#"{"client_id":"a","resource":"r"}"#;
const JSON: (&str, &str) = ("content-type", "application/json");
const ITEM: &str = r#"{"attributes":{"client_id":"a"}}"#;
const NUMBERS: &str = r#"{"limit":5,"window_seconds":60}"#;
const SIMPLE: &str = r#"{"window_seconds":60,"request_per_window":5}"#;
const CLIENT: &str = r#"{"client_id":"a","window_seconds":60,"request_per_window":5}"#;
const TRIAL: &str = r#"{"policies":[{"limit":5,"window_seconds":60}],"requests":[{"at_ms":1}],"until_ms":9}"#;

/// A token for each scope, called like it.
fn one_token_a_scope() -> Vec<Credential> {
    Scope::ALL.into_iter().map(|scope| Credential::new(scope.word(), [scope], &secret(scope))).collect()
}

fn secret(scope: Scope) -> String {
    format!("the-secret-to-{}", scope.word())
}

fn guarded(tokens: Vec<Credential>) -> Running {
    Setup { tokens, ..Setup::default() }.start()
}

fn trusting(hosts: &[&str], cors: &[&str]) -> Running {
    let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    let origins = TrustedOrigins { hosts: owned(hosts), cors: owned(cors) };
    Setup { origins, ..Setup::default() }.start()
}

/// Method, path and body of a request, and the scope that it needs.
type Asked = (&'static str, &'static str, &'static str, Option<Scope>);

/// Every route of the API, with a request that it would take.
fn requests() -> Vec<Asked> {
    other_requests().into_iter().chain(requests_for_documents()).collect()
}

/// Those for documents of gateway and edge.
fn requests_for_documents() -> [Asked; 12] {
    [
        ("GET", "/v1/routes", "", Some(Scope::Read)),
        ("GET", "/v1/routes/a", "", Some(Scope::Read)),
        ("GET", "/v1/upstreams", "", Some(Scope::Read)),
        ("GET", "/v1/upstreams/a", "", Some(Scope::Read)),
        ("GET", "/v1/edge/backends", "", Some(Scope::Read)),
        ("GET", "/v1/edge/backends/a", "", Some(Scope::Read)),
        ("DELETE", "/v1/edge/backends/a", "", Some(Scope::Configure)),
        ("GET", "/v1/edge/places", "", Some(Scope::Read)),
        ("GET", "/v1/edge/places/a", "", Some(Scope::Read)),
        ("DELETE", "/v1/edge/places/a", "", Some(Scope::Configure)),
        ("DELETE", "/v1/routes/a", "", Some(Scope::Configure)),
        ("DELETE", "/v1/upstreams/a", "", Some(Scope::Configure)),
    ]
}

fn other_requests() -> [Asked; 62] {
    [
        ("GET", "/api/v1/health", "", None),
        ("GET", "/openapi.json", "", None),
        ("POST", "/api/v1/ratelimit", ASK, Some(Scope::Decide)),
        ("POST", "/v1/decisions", ITEM, Some(Scope::Decide)),
        ("GET", "/v1/check", "", Some(Scope::Decide)),
        ("POST", "/v1/permits", ITEM, Some(Scope::Decide)),
        ("POST", "/v1/permits/0.W10/renew", "", Some(Scope::Decide)),
        ("DELETE", "/v1/permits/0.W10", "", Some(Scope::Decide)),
        ("POST", "/v1/refunds", ITEM, Some(Scope::Refund)),
        // Its reply to a GET has no end.
        ("HEAD", "/v1/events", "", Some(Scope::Read)),
        ("GET", "/v1/explain?client_id=a", "", Some(Scope::Read)),
        ("GET", "/v1/explain/route?host=a&path=/&client_ip=127.0.0.1", "", Some(Scope::Read)),
        ("GET", "/v1/explain/edge?client_ip=127.0.0.1", "", Some(Scope::Read)),
        ("GET", "/v1/edge/decisions", "", Some(Scope::Read)),
        ("GET", "/v1/analytics", "", Some(Scope::Read)),
        ("GET", "/v1/gateway/breakers", "", Some(Scope::Read)),
        ("GET", "/v1/gateway/traces", "", Some(Scope::Read)),
        ("GET", "/v1/gateway/traces/a", "", Some(Scope::Read)),
        ("GET", "/v1/intake/query?name=a", "", Some(Scope::Read)),
        ("GET", "/v1/intake/oldest", "", Some(Scope::Read)),
        ("GET", "/v1/intake/groups", "", Some(Scope::Read)),
        ("DELETE", "/v1/intake/groups/a", "", Some(Scope::Configure)),
        ("GET", "/v1/capacity", "", Some(Scope::Read)),
        ("POST", "/v1/capacity", "{}", Some(Scope::Configure)),
        ("DELETE", "/v1/capacity", "", Some(Scope::Configure)),
        ("GET", "/v1/candidate", "", Some(Scope::Read)),
        ("PUT", "/v1/candidate", r#"{"route":[{"name":"a","respond":{}}]}"#, Some(Scope::Configure)),
        ("POST", "/v1/candidate/promote", "", Some(Scope::Configure)),
        ("DELETE", "/v1/candidate", "", Some(Scope::Configure)),
        ("GET", "/v1/saturation", "", Some(Scope::Read)),
        ("GET", "/v1/saturation/reports/a.json", "", Some(Scope::Read)),
        ("GET", "/v1/saturation/preflight?target=http://127.0.0.1:1/", "", Some(Scope::Read)),
        // No machine but this one may be a target.
        ("POST", "/v1/saturation/run", r#"{"target":"http://192.0.2.1/"}"#, Some(Scope::Configure)),
        ("DELETE", "/v1/saturation/run", "", Some(Scope::Configure)),
        ("GET", "/v1/warnings", "", Some(Scope::Read)),
        ("GET", "/v1/certificates", "", Some(Scope::Read)),
        ("GET", "/v1/nodes", "", Some(Scope::Read)),
        ("GET", "/v1/history", "", Some(Scope::Read)),
        ("GET", "/v1/nearest-clients", "", Some(Scope::Read)),
        ("GET", "/v1/clients", "", Some(Scope::Read)),
        ("DELETE", "/v1/clients/a/usage", "", Some(Scope::Configure)),
        ("GET", "/v1/policies", "", Some(Scope::Read)),
        ("GET", "/v1/policies/default", "", Some(Scope::Read)),
        ("GET", "/v1/clients/a/limits", "", Some(Scope::Read)),
        ("GET", "/v1/audit", "", Some(Scope::Read)),
        ("POST", "/v1/revert", r#"{"revision":0}"#, Some(Scope::Configure)),
        ("GET", "/v1/set-aside", "", Some(Scope::Read)),
        ("GET", "/v1/denied-clients", "", Some(Scope::Read)),
        ("GET", "/v1/settings", "", Some(Scope::Read)),
        ("POST", "/v1/playground", TRIAL, Some(Scope::Read)),
        ("GET", "/api/v1/client-config/a", "", Some(Scope::Read)),
        ("POST", "/api/v1/configure", SIMPLE, Some(Scope::Configure)),
        ("POST", "/api/v1/configure-client", CLIENT, Some(Scope::Configure)),
        ("DELETE", "/api/v1/client-config/a", "", Some(Scope::Configure)),
        ("GET", "/v1/keys", "", Some(Scope::Read)),
        ("GET", "/v1/keys/a", "", Some(Scope::Read)),
        ("POST", "/v1/keys", r#"{"consumer":"a"}"#, Some(Scope::Configure)),
        ("PATCH", "/v1/keys/a", r#"{"consumer":"b"}"#, Some(Scope::Configure)),
        ("POST", "/v1/keys/a/rotation", "{}", Some(Scope::Configure)),
        ("DELETE", "/v1/keys/a", "", Some(Scope::Configure)),
        ("PUT", "/v1/policies/mine", NUMBERS, Some(Scope::Configure)),
        ("PUT", "/v1/clients/a/limits", r#"{"default":{"limit":7}}"#, Some(Scope::Configure)),
    ]
}

fn send(service: &Running, (method, path, body): (&str, &str, &str), fields: &[(&str, &str)]) -> Answer {
    let fields = [&[JSON], fields].concat();
    let body = (!body.is_empty() || method == "POST").then_some(body.as_bytes());
    service.send(method, path, &fields, body)
}

#[test]
fn fault_45_each_route_takes_the_token_of_its_scope_and_no_other() {
    let service = guarded(one_token_a_scope());
    for (method, path, body, needed) in requests() {
        let none = send(&service, (method, path, body), &[]).status;
        let wrong =
            send(&service, (method, path, body), &[("authorization", "Bearer the-secret-to-nothing")]);
        let Some(needed) = needed else {
            assert_eq!((none, wrong.status), (200, 200), "{method} {path} is for everybody");
            continue;
        };
        assert_eq!((none, wrong.status), (401, 401), "{method} {path}");
        assert_eq!(wrong.header("www-authenticate"), "Bearer");
        for scope in Scope::ALL {
            let token = format!("Bearer {}", secret(scope));
            let answer = send(&service, (method, path, body), &[("authorization", &token)]);
            let refused = matches!(answer.status, 401 | 403);
            assert_eq!(refused, scope != needed, "{method} {path} with {scope:?}: {}", answer.body);
            assert!(!refused || answer.header("content-type") == "application/problem+json");
        }
    }
}

#[test]
fn every_route_is_among_those_whose_scope_is_tested() {
    let tested: Vec<String> = requests().iter().map(|(_, path, ..)| (*path).to_owned()).collect();
    // Who asks for a session has a token or none, and no scope: see sessions.rs.
    let admin = ADMIN_TEMPLATES.into_iter().filter(|template| *template != "/v1/session");
    let documents = DOCUMENTS.iter().flat_map(|resource| resource.paths());
    for template in TEMPLATES.into_iter().chain(admin).chain(documents).chain([openapi::PATH]) {
        let (before, after) = template.split_once('{').unwrap_or((template, ""));
        let after = after.split_once('}').map_or("", |(_, rest)| rest);
        let fits = |path: &String| {
            let path = path.split('?').next().unwrap();
            path.starts_with(before) && path.ends_with(after) && (path == before) == before.eq(template)
        };
        assert!(tested.iter().any(fits), "{template}");
    }
}

#[test]
fn a_replaced_token_is_good_no_longer_from_the_next_request_on() {
    let service = guarded(vec![Credential::new("old", [Scope::Decide], "the-old-secret-16")]);
    let ask = |secret: &str| {
        send(&service, ("POST", "/api/v1/ratelimit", ASK), &[("authorization", &format!("Bearer {secret}"))])
            .status
    };
    assert_eq!((ask("the-old-secret-16"), ask("the-new-secret-16")), (200, 401));
    service.reload_tokens([Credential::new("new", [Scope::Decide], "the-new-secret-16")]);
    assert_eq!((ask("the-old-secret-16"), ask("the-new-secret-16")), (401, 200));
}

#[test]
fn the_audit_log_names_the_token() {
    let service = guarded(one_token_a_scope());
    let with = |scope| format!("Bearer {}", secret(scope));
    let numbers = r#"{"window_seconds":60,"request_per_window":5}"#;
    let changed =
        send(&service, ("POST", "/api/v1/configure", numbers), &[("authorization", &with(Scope::Configure))]);
    assert_eq!(changed.status, 200);
    let log = send(&service, ("GET", "/v1/audit", ""), &[("authorization", &with(Scope::Read))]).body;
    assert_eq!(log[0]["actor"], "configure");
}

/// The status of a request that a browser would send from a page of `origin` to `host`.
fn from_page(service: &Running, (method, path, body): (&str, &str, &str), host: &str, origin: &str) -> u16 {
    let mut stream = TcpStream::connect(service.address).unwrap();
    let origin = if origin.is_empty() { String::new() } else { format!("origin: {origin}\r\n") };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{origin}content-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn fault_51_a_page_whose_name_was_rebound_to_loopback_reads_and_changes_nothing() {
    let service = start();
    for (method, path, body, needed) in requests() {
        let request = (method, path, body);
        let is_configuration = matches!(needed, Some(Scope::Read | Scope::Configure));
        let rebound = from_page(&service, request, "attacker.example", "http://attacker.example");
        let same_site = from_page(&service, request, "attacker.example:4000", "");
        let cross_site = from_page(&service, request, "127.0.0.1:4000", "http://attacker.example");
        for status in [rebound, same_site, cross_site] {
            assert_eq!(status == 403, is_configuration, "{method} {path}: {status}");
        }
        for origin in ["", "http://localhost:4000"] {
            let own = from_page(&service, request, "localhost:4000", origin);
            assert_ne!(own, 403, "{method} {path} from {origin:?}");
        }
    }
    // Who asks is configuration, too; it has no scope, and so no row.
    for method in ["GET", "POST"] {
        let who = (method, "/v1/session", "");
        assert_eq!(from_page(&service, who, "attacker.example", "http://attacker.example"), 403);
        assert_eq!(from_page(&service, who, "127.0.0.1:4000", "http://attacker.example"), 403);
        assert_eq!(from_page(&service, who, "localhost:4000", "http://localhost:4000"), 200);
    }
    let log = service.get("/v1/audit").body;
    assert!(log.as_array().unwrap().iter().all(|row| row["actor"] == "local"), "{log}");
}

#[test]
fn fault_51_the_console_is_not_had_under_a_foreign_name_unless_whoever_opens_it_signs_in() {
    let (open, closed) = (trusting(&["limits.example"], &[]), guarded(one_token_a_scope()));
    for path in ["/", "/dashboard", "/console.js", "/console.css", "/console.svg"] {
        let asked = ("GET", path, "");
        assert_eq!(from_page(&open, asked, "attacker.example", ""), 403, "{path}");
        for host in ["localhost:4000", "127.0.0.1", "limits.example"] {
            assert_ne!(from_page(&open, asked, host, ""), 403, "{path} of {host}");
        }
        assert_ne!(from_page(&closed, asked, "limits.example", ""), 403, "{path} with tokens");
    }
}

#[test]
fn a_host_of_the_list_is_as_good_as_loopback() {
    let service = trusting(&["limits.example"], &["https://console.example"]);
    let read = ("GET", "/v1/policies", "");
    assert_eq!(from_page(&service, read, "limits.example", "http://limits.example"), 200);
    assert_eq!(from_page(&service, read, "limits.example:8443", "https://console.example"), 200);
    assert_eq!(from_page(&service, read, "limits.example", "http://attacker.example"), 403);
    assert_eq!(from_page(&service, read, "attacker.example", "https://console.example"), 403);
}

#[test]
fn pages_of_listed_origins_may_ask_and_others_may_not() {
    let service = trusting(&[], &["https://shop.example"]);
    let preflight = |origin: &str| {
        let fields = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type"),
        ];
        service.send("OPTIONS", "/api/v1/ratelimit", &fields, None)
    };
    let allowed = preflight("https://shop.example");
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), "https://shop.example");
    assert!(allowed.header("access-control-allow-methods").contains("POST"));
    assert!(allowed.header("access-control-allow-headers").contains("content-type"));
    assert!(!allowed.headers.contains_key("access-control-allow-credentials"));
    let refused = preflight("https://attacker.example");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (405, ""));

    // In one piece, which would be answered from buffer to buffer, and by the router.
    for request in
        [("POST", "/api/v1/ratelimit", ASK), ("GET", "/v1/policies", ""), ("GET", "/v1/nothing", "")]
    {
        let asked = |origin| send(&service, request, &[("origin", origin)]);
        let listed = asked("https://shop.example");
        assert_eq!(listed.header("access-control-allow-origin"), "https://shop.example", "{request:?}");
        assert_eq!(listed.header("vary"), "origin");
        assert!(listed.header("access-control-expose-headers").contains("retry-after"));
        let other = asked("https://attacker.example");
        assert_eq!((other.header("access-control-allow-origin"), other.header("vary")), ("", "origin"));
    }
    let plain = send(&service, ("POST", "/api/v1/ratelimit", ASK), &[]);
    assert_eq!((plain.status, plain.header("vary")), (200, ""));
}

#[test]
fn cors_is_off_unless_configured() {
    let service = start();
    let answer = send(&service, ("POST", "/api/v1/ratelimit", ASK), &[("origin", "https://shop.example")]);
    assert_eq!((answer.status, &answer.body), (200, &json!({"allowed": true, "remaining": 99})));
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), ("", ""));
    let fields = [("origin", "https://shop.example"), ("access-control-request-method", "POST")];
    assert_eq!(service.send("OPTIONS", "/api/v1/ratelimit", &fields, None).status, 405);
}
