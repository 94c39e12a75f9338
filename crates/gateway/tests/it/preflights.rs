//! Preflights on routes that ask for credentials and leave CORS to their servers.

use crate::support::{Backend, Got, TestGateway, config, reply, status};
use serde_json::{Value, json};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

const ASKS: &str = "origin: https://a.example\r\naccess-control-request-method: PUT\r\n";

/// A server that does CORS, and does whatever it is asked for by `OPTIONS`, too.
fn app() -> Backend {
    Backend::start(|_| {
        let fields = ["access-control-allow-origin: https://a.example", "access-control-allow-methods: PUT"];
        reply(200, &fields, "done")
    })
}

/// A gateway in front of it whose route asks for credentials that nobody has.
fn in_front_of(app: &Backend, judge: &Backend, route: &Value) -> TestGateway {
    let mut all = json!({"name": "all", "upstream": "app"});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    let upstreams = json!([
        {"name": "app", "servers": [app.url()]},
        {"name": "judge", "servers": [judge.url()]}
    ]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, json!([all])))
}

fn ask(gateway: &TestGateway, method: &str, rest: &str) -> Got {
    gateway.send(&format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{rest}\r\n"))
}

/// What a route may ask for.
fn auths() -> [Value; 3] {
    [
        json!({"auth": "key"}),
        json!({"auth": "forward", "forward_auth": {"upstream": "judge"}}),
        json!({"auth": "certificate", "certificate": {"names": ["*"]}}),
    ]
}

#[test]
fn a_preflight_passes_without_credentials_where_the_route_says_so() {
    for mut route in auths() {
        let (app, judge) = (app(), Backend::start(|_| reply(401, &[], "")));
        assert_eq!(
            status(&ask(&in_front_of(&app, &judge, &route), "OPTIONS", ASKS)),
            401,
            "by default: {route}"
        );
        assert!(app.got().is_empty());
        let asked = judge.got().len();
        route["skip_auth_preflight"] = json!(true);
        let gateway = in_front_of(&app, &judge, &route);
        // Nobody has looked at these, so that they prove nothing to the server either.
        let unverified = "authorization: Bearer it\r\nx-api-key: it\r\ncookie: session=it\r\n";
        let passed = ask(&gateway, "OPTIONS", &format!("{ASKS}{unverified}"));
        assert_eq!(status(&passed), 200, "{route}");
        assert_eq!(passed.field("access-control-allow-methods"), Some("PUT"));
        let got = app.got();
        assert_eq!((got.len(), &*got[0].line), (1, "OPTIONS / HTTP/1.1"));
        assert_eq!(got[0].field("origin"), Some("https://a.example"));
        assert!(["authorization", "cookie"].iter().all(|name| got[0].field(name).is_none()), "{got:?}");
        assert_eq!(judge.got().len(), asked, "nobody is asked about it");
        // The request that follows has them, or is refused.
        assert_eq!(status(&ask(&gateway, "PUT", &format!("{ASKS}content-length: 0\r\n"))), 401, "{route}");
        assert_eq!(app.got().len(), 1);
    }
}

#[test]
fn an_options_request_that_is_no_preflight_needs_credentials() {
    for mut route in auths() {
        route["skip_auth_preflight"] = json!(true);
        let (app, judge) = (app(), Backend::start(|_| reply(401, &[], "")));
        let gateway = in_front_of(&app, &judge, &route);
        for (method, rest) in [
            ("OPTIONS", ""),
            ("OPTIONS", "origin: https://a.example\r\n"),
            ("OPTIONS", "access-control-request-method: PUT\r\n"),
            ("OPTIONS", "origin:\r\naccess-control-request-method: PUT\r\n"),
            ("OPTIONS", "origin: https://a.example\r\naccess-control-request-method:\r\n"),
            ("OPTIONS", "origin: https://a.example\r\naccess-control-request-method: PUT, GET\r\n"),
            ("OPTIONS", "origin: https://a.example\r\naccess_control_request_method: PUT\r\n"),
            ("OPTIONS", &format!("{ASKS}origin: https://b.example\r\n")),
            ("OPTIONS", &format!("{ASKS}access-control-request-method: PUT\r\n")),
            // A preflight has no body, and does not go on in another protocol.
            ("OPTIONS", &format!("{ASKS}content-length: 2\r\n\r\nhi")),
            ("OPTIONS", &format!("{ASKS}transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n")),
            ("GET", ASKS),
            ("PUT", &format!("{ASKS}content-length: 0\r\n")),
            ("POST", &format!("{ASKS}x-http-method-override: OPTIONS\r\ncontent-length: 0\r\n")),
            ("options", ASKS),
        ] {
            assert_eq!(status(&ask(&gateway, method, rest)), 401, "{route} {method} {rest}");
        }
        let upgrading = format!(
            "OPTIONS / HTTP/1.1\r\nhost: a\r\n{ASKS}connection: upgrade\r\nupgrade: websocket\r\n\r\n"
        );
        assert_eq!(status(&gateway.send(&upgrading)), 401, "{route}");
        assert!(app.got().is_empty(), "{route}");
    }
}

#[test]
fn preflights_pass_only_where_there_is_something_to_pass_and_a_server_to_answer_them() {
    for (route, accepted) in [
        (json!({"upstream": "app"}), "auth beside it"),
        (json!({"respond": {}, "auth": "key"}), "upstream beside it"),
        (json!({"upstream": "app", "auth": "key", "cors": {"origins": ["https://a"]}}), "one of the two"),
    ] {
        let mut route = route;
        (route["name"], route["skip_auth_preflight"]) = (json!("r"), json!(true));
        let upstream = json!({"name": "app", "servers": ["a:80"]});
        let mistakes =
            GatewayConfig::check(std::slice::from_ref(&upstream), std::slice::from_ref(&route), &[])
                .unwrap_err();
        assert_eq!(mistakes[0].pointer, "/route/0/skip_auth_preflight", "{mistakes:?}");
        assert_eq!(mistakes[0].accepted, accepted, "{mistakes:?}");
        route["skip_auth_preflight"] = json!(false);
        assert!(GatewayConfig::check(&[upstream], &[route], &[]).is_ok());
    }
}
