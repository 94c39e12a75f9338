//! Another upstream in place of one that gives no reply.

use std::net::SocketAddr;

use crate::support::{Backend, Got, Reaction, TestGateway, config, reply, status, text};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

/// A route to `first` and then to `second`, with these options of the first upstream and of the fallback.
fn gateway(first: &[String], second: &[String], upstream: Value, fallback: Value) -> TestGateway {
    let mut app = json!({"name": "app", "servers": first});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let other = json!({"name": "other", "servers": second});
    let mut all = json!({"name": "all", "upstream": "app", "fallback": {"upstream": "other"}});
    all["fallback"].as_object_mut().unwrap().extend(fallback.as_object().unwrap().clone());
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([app, other]), json!([all])))
}

/// An address that refuses connections, and that nothing else gets.
fn nobody() -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    format!("http://{address}")
}

fn ask(gateway: &TestGateway, method: &str, body: &str) -> Got {
    let length = body.len();
    gateway.send(&format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}"))
}

#[test]
fn what_no_server_of_the_first_upstream_answers_goes_to_the_other_one() {
    let other = Backend::start(|got| reply(200, &[], &format!("other:{}", text(got))));
    // Nobody is there: nothing was sent, so that any request may go on.
    let gateway_ = gateway(&[nobody(), nobody()], &[other.url()], json!({}), json!({}));
    for method in ["GET", "POST"] {
        let got = ask(&gateway_, method, "body");
        assert_eq!((status(&got), text(&got)), (200, "other:body".to_owned()), "{method}");
    }
    // Its server takes requests and gives no reply: only what may be repeated goes on.
    let silent = Backend::start(|_| Reaction::Last(Vec::new()));
    let gateway = gateway(&[silent.url()], &[other.url()], json!({}), json!({}));
    assert_eq!(status(&ask(&gateway, "PUT", "body")), 200);
    assert_eq!(status(&ask(&gateway, "POST", "body")), 502, "the server may have obeyed it");
}

#[test]
fn an_open_breaker_and_an_upstream_that_is_full_have_the_fallback_too() {
    let (failing, other) = (Backend::start(|_| reply(500, &[], "no")), Backend::named("other"));
    let breaker = json!({"breaker": {"minimum_calls": 2, "calls": 2, "first_open_seconds": 3600, "open_seconds": 3600}});
    let gateway_ = gateway(&[failing.url()], &[other.url()], breaker, json!({}));
    let told: Vec<(u16, String)> =
        (0..4).map(|_| gateway_.get("/")).map(|got| (status(&got), text(&got))).collect();
    let (own, others) = ((500, "no".to_owned()), (200, "other".to_owned()));
    assert_eq!(told, [own.clone(), own, others.clone(), others], "a server's own errors pass");
    assert_eq!(failing.got().len(), 2);

    let silent = Backend::start(|_| Reaction::Silence);
    let gateway = gateway(&[silent.url()], &[other.url()], json!({"max_requests": 1}), json!({}));
    let mut first = gateway.connect();
    std::io::Write::write_all(&mut first, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    while silent.got().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(text(&gateway.get("/")), "other");
}

#[test]
fn where_the_other_gives_no_reply_either_it_ends() {
    let (first, second) = (nobody(), nobody());
    let only = std::slice::from_ref;
    let gateway_ = gateway(only(&first), only(&second), json!({}), json!({}));
    assert_eq!(status(&gateway_.get("/")), 502);
    let fixed = json!({"status": 299, "body": "sorry"});
    let gateway_ = gateway(only(&first), only(&second), json!({}), fixed);
    let got = gateway_.get("/");
    assert_eq!((status(&got), text(&got)), (299, "sorry".to_owned()));
    let attempts = |upstream: usize| {
        let servers = &gateway_.gateway.upstreams()[upstream].servers;
        servers.iter().map(|(_, status)| status.successes + status.failures).sum::<u64>()
    };
    assert_eq!((attempts(0), attempts(1)), (1, 1), "each upstream once");
    let late = Backend::start(|_| Reaction::Silence);
    let route = json!([{"name": "all", "upstream": "app", "timeout_seconds": 0.2, "fallback": {"upstream": "other"}}]);
    let upstreams = json!([
        {"name": "app", "servers": [late.url()]},
        {"name": "other", "servers": [second]},
    ]);
    gateway_.apply(&config(upstreams, route));
    assert_eq!(status(&gateway_.get("/")), 504, "no time is left for another");
}

#[test]
fn a_fallback_that_cannot_be_is_a_mistake() {
    let upstreams = [json!({"name": "app", "servers": ["a:1"]})];
    for (route, pointer) in [
        (
            json!({"name": "r", "upstream": "app", "fallback": {"upstream": "app"}}),
            "/route/0/fallback/upstream",
        ),
        (
            json!({"name": "r", "upstream": "app", "fallback": {"upstream": "none"}}),
            "/route/0/fallback/upstream",
        ),
        (json!({"name": "r", "respond": {}, "fallback": {"upstream": "app"}}), "/route/0/fallback/upstream"),
        (
            json!({"name": "r", "upstream": "app", "fallback": {"upstreams": "x"}}),
            "/route/0/fallback/upstreams",
        ),
    ] {
        let mistakes = GatewayConfig::check(&upstreams, std::slice::from_ref(&route), &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, pointer, "{route}");
    }
}
