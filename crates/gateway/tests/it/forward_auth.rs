//! Another service says whose a request is: it hears of the request what the server hears, and its cookies reach the client.
//! What becomes of its answers is shown by `crates/tidegate/tests/it/forward_auth.rs`, with nginx.

use std::sync::Arc;

use crate::support::{Backend, TestGateway, config, reply, status};
use serde_json::{Value, json};
use tidegate_gateway::limits::{Denial, LimitedRequest, Limits, LimitsAnswer, Ruling, Unlimited};
use tidegate_gateway::service::{ClientField, GatewaySettings};

/// A gateway that asks `judge` before it sends anything to `app`.
fn asking(
    judge: &Backend,
    app: &Backend,
    keys: Value,
    route: Value,
    settings: GatewaySettings,
) -> TestGateway {
    TestGateway::start(Unlimited, settings, &asked(judge, app, keys, route))
}

fn asked(
    judge: &Backend,
    app: &Backend,
    keys: Value,
    route: Value,
) -> tidegate_gateway::config::GatewayConfig {
    let upstreams = json!([
        {"name": "app", "servers": [app.url()]},
        {"name": "judge", "servers": [judge.url()]}
    ]);
    let mut ask = json!({"upstream": "judge", "path": "/verify", "timeout_seconds": 60});
    ask.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let mut all = json!({"name": "all", "upstream": "app", "auth": "forward", "forward_auth": ask});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    config(upstreams, json!([all]))
}

/// Lets pass what is public, as it is told of it.
fn of_public() -> Backend {
    Backend::start(|got| {
        let uri = got.field("x-forwarded-uri").unwrap();
        reply(if uri.starts_with("/public/") || uri.starts_with("//") { 204 } else { 403 }, &[], "")
    })
}

#[test]
fn fault_54_no_spelling_of_a_path_gets_past_the_service() {
    let (judge, app) = (of_public(), Backend::named("app"));
    let gateway = asking(&judge, &app, json!({}), json!({}), GatewaySettings::default());
    for path in [
        "/admin/x",
        "/public/../admin/x",
        "/public/%2e%2e/admin/x",
        "/public/..;a/admin/x",
        "/public/.%2e/admin/x",
        "//admin/x",
        "/public/./../admin/x",
        "/public//../admin/x",
    ] {
        assert_eq!(status(&gateway.get(path)), 403, "{path}");
    }
    for path in ["/public/..%2fadmin/x", "/public%2f..%2fadmin/x", "/public/%2e%2e%5cadmin/x", "/public%2fx"]
    {
        assert_eq!(status(&gateway.get(path)), 400, "{path}");
    }
    assert!(app.got().is_empty());
    assert_eq!(status(&gateway.get("/public/x/")), 200);
    assert_eq!(app.got()[0].line, "GET /public/x/ HTTP/1.1");
}

#[test]
fn fault_54_what_one_path_was_admitted_by_admits_no_other_one() {
    let (judge, app) = (of_public(), Backend::named("app"));
    let keys = json!({"cache_seconds": 3600, "cache_by": ["path"]});
    let gateway = asking(&judge, &app, keys.clone(), json!({}), GatewaySettings::default());
    for (path, expected, asked) in [
        ("/public/../admin/y", 403, 1),
        ("/admin/y", 403, 2),
        ("/public/y", 200, 3),
        ("/x/../public/y", 200, 3),
        ("/public/y?z", 200, 3),
        ("/public/y/", 200, 4),
        ("/public/y;v=1", 200, 5),
        ("/public/%79", 200, 5),
    ] {
        assert_eq!((status(&gateway.get(path)), judge.got().len()), (expected, asked), "{path}");
    }
    // Where slashes are left to both, the service has judged each spelling of them.
    let loose = json!({"merge_slashes": false, "encoded_slash": "keep"});
    let judge = of_public();
    let gateway = asking(&judge, &app, keys, loose, GatewaySettings::default());
    for (path, expected, asked) in
        [("//admin/y", 200, 1), ("/admin/y", 403, 2), ("/public/a%2Fb", 200, 3), ("/public/a/b", 200, 4)]
    {
        assert_eq!((status(&gateway.get(path)), judge.got().len()), (expected, asked), "{path}");
    }
    assert!(app.got().iter().any(|got| got.line == "GET //admin/y HTTP/1.1"), "it was judged as that");
}

/// Where no key can be read, the next way decides: neither its service nor the server may read one there.
#[test]
fn fault_46_credentials_that_cannot_be_read_reach_no_server_by_another_way() {
    let (judge, app) = (Backend::start(|_| reply(204, &[], "")), Backend::named("app"));
    let upstreams = json!([
        {"name": "app", "servers": [app.url()]},
        {"name": "judge", "servers": [judge.url()]}
    ]);
    let all = json!({
        "name": "all", "upstream": "app", "auth_any": ["key", "forward"], "key_in": ["basic"],
        "forward_auth": {"upstream": "judge", "timeout_seconds": 60}
    });
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &config(upstreams, json!([all])));
    let credentials = ["Basic\tdXNlcg==", "Basic dXNlcg", "basic !", "Basic:dTprZXk="];
    for credential in credentials {
        let request =
            format!("GET / HTTP/1.1\r\nhost: a\r\nauthorization: {credential}\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&gateway.send(&request)), 200, "{credential}");
    }
    for got in [judge.got(), app.got()] {
        assert_eq!(got.len(), credentials.len());
        assert!(got.iter().all(|got| got.field("authorization").is_none()), "{got:?}");
    }
    // A key that can be read decides, however it is written.
    let key = "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Basic\tdTprZXk=\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&gateway.send(key)), 401);
    assert_eq!(app.got().len(), credentials.len());
    // What stands in no place of a key is the application's.
    let other = "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Digest a=b\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&gateway.send(other)), 200);
    assert_eq!(app.got().last().unwrap().field("authorization"), Some("Digest a=b"));
}

const TOLD: [&str; 2] = ["x-forwarded-proto", "x-forwarded-host"];

#[test]
fn scheme_and_host_are_those_that_the_server_hears() {
    let behind = |client_from: ClientField| GatewaySettings {
        trusted_hops: 1,
        client_from,
        ..GatewaySettings::default()
    };
    let set = json!({"request_fields": {"set": {"x-forwarded-proto": "https"}}});
    let stated =
        "x-forwarded-proto: https\r\nx-forwarded-host: shop.example:8443\r\nx-forwarded-for: 192.0.2.7\r\n";
    let forwarded = "forwarded: for=192.0.2.7;proto=https;host=\"shop.example\"\r\n";
    let plain = GatewaySettings::default;
    for (settings, route, fields, expected) in [
        (plain(), json!({}), "", ["http", "Shop.Example:81"]),
        (plain(), json!({}), stated, ["http", "Shop.Example:81"]),
        (plain(), json!({}), forwarded, ["http", "Shop.Example:81"]),
        (plain(), set, "", ["https", "Shop.Example:81"]),
        (behind(ClientField::XForwardedFor), json!({}), stated, ["https", "shop.example:8443"]),
        (behind(ClientField::XForwardedFor), json!({}), "", ["http", "Shop.Example:81"]),
        (behind(ClientField::Forwarded), json!({}), forwarded, ["https", "shop.example"]),
        (behind(ClientField::Forwarded), json!({}), stated, ["http", "Shop.Example:81"]),
    ] {
        let (judge, app) = (Backend::start(|_| reply(204, &[], "")), Backend::named("app"));
        // Nor may the client say it by way of a field that is passed on.
        let send = json!({"send": ["x-forwarded-proto", "x-forwarded-host", "cookie"]});
        let gateway = asking(&judge, &app, send, route, settings);
        let head = format!("GET /x?y HTTP/1.1\r\nhost: Shop.Example:81\r\n{fields}connection: close\r\n\r\n");
        assert_eq!(status(&gateway.send(&head)), 200);
        let heard = |backend: &Backend| {
            let got = backend.got().remove(0);
            TOLD.map(|name| {
                let lines = got.fields.iter().filter(|(known, _)| known == name);
                lines.map(|(_, value)| value.clone()).collect::<Vec<_>>()
            })
        };
        assert_eq!(heard(&app), expected.map(|text| vec![text.to_owned()]), "{fields}");
        assert_eq!(heard(&judge), heard(&app), "{fields}");
    }
}

/// Denies everything.
#[derive(Debug)]
struct Full;

impl<'r> Limits<LimitedRequest<'r>> for Full {
    fn charge<'a>(&'a self, policies: &'a [Arc<str>], _: &'a LimitedRequest<'r>) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let policies = policies.iter().map(ToString::to_string).collect();
            Ruling { denial: Some(Denial::Quota { policies }), ..Ruling::default() }
        })
    }
}

#[test]
fn cookies_of_an_answer_that_admits_reach_its_client_and_no_other_one() {
    let judge = Backend::start(|_| reply(200, &["set-cookie: a=1", "set-cookie: b=2", "x-secret: 1"], ""));
    let app = Backend::start(|_| reply(200, &["set-cookie: app=1"], ""));
    let cookies = |got: crate::support::Got| -> Vec<String> {
        let fields = got.fields.into_iter().filter(|(name, _)| name == "set-cookie" || name == "x-secret");
        fields.map(|(_, value)| value).collect()
    };
    let served = |keys: Value| asking(&judge, &app, keys, json!({}), GatewaySettings::default());
    let always = served(json!({}));
    for _ in 0..2 {
        assert_eq!(cookies(always.get("/")), ["app=1", "a=1", "b=2"]);
    }
    let cached = served(json!({"cache_seconds": 3600, "cache_by": ["host"]}));
    assert_eq!(cookies(cached.get("/")), ["app=1", "a=1", "b=2"]);
    assert_eq!(cookies(cached.get("/")), ["app=1"], "the second client is not given the first one's session");
    let without = served(json!({"pass_back": ["location"]}));
    assert_eq!(cookies(without.get("/")), ["app=1"], "the route does not pass them");
    // Who is refused afterwards has been admitted all the same.
    let limited = asked(&judge, &app, json!({}), json!({"policies": ["per-client"]}));
    let limited = TestGateway::start(Full, GatewaySettings::default(), &limited);
    let refused = limited.get("/");
    assert_eq!((status(&refused), cookies(refused)), (429, vec!["a=1".to_owned(), "b=2".to_owned()]));
}
