//! Limits that come with a request: they decide where nobody wrote a policy, and nowhere else.

use serde_json::{Value, json};
use tidegate_algorithms::policy::parse;
use tidegate_limiter::policy_set::FileLayer;

use crate::api::support::{Running, Setup, start, start_with};

const DECISIONS: &str = "/v1/decisions";

/// Two in 90 days.
fn two() -> Value {
    json!({"limit": 2, "window_seconds": 7_776_000, "algorithm": "fixed_window"})
}

fn asked(client: &str, limits: &Value) -> Value {
    json!({"attributes": {"client_id": client, "resource": "shop"}, "limits": limits})
}

/// What so many requests are answered, and by which policy the last one was.
fn answered(service: &Running, body: &Value, times: usize) -> (Vec<bool>, Value) {
    let replies: Vec<Value> = (0..times).map(|_| service.post(DECISIONS, &body.to_string()).body).collect();
    let allowed = replies.iter().map(|reply| reply["allowed"].as_bool().unwrap()).collect();
    (allowed, replies[times - 1]["policy"].clone())
}

#[test]
fn limits_of_a_request_hold_from_the_first_one_on() {
    let service = start();
    let body = asked("a", &two());
    let first = service.post(DECISIONS, &body.to_string());
    assert_eq!((&first.body["limit"], &first.body["remaining"]), (&json!(2), &json!(1)));
    assert_eq!(first.header("ratelimit-policy"), "\"LIMITS\";q=2;w=7776000");
    // The same attributes in another order are the same counter.
    let turned = r#"{"limits":{"limit":2,"window_seconds":7776000,"algorithm":"fixed_window"},
                     "attributes":{"resource":"shop","client_id":"a"}}"#;
    assert_eq!(service.post(DECISIONS, turned).body["remaining"], 0);
    assert_eq!(answered(&service, &body, 2), (vec![false, false], json!("LIMITS")));
    assert_eq!(answered(&service, &asked("b", &two()), 1).0, [true], "another client has its own");
    let refunded = service.post("/v1/refunds", &body.to_string());
    assert_eq!(refunded.body, json!({"policies": ["LIMITS"]}));
    assert_eq!(answered(&service, &body, 2).0, [true, false]);
    let tallies = service.engine.tallies().read();
    let (_, counted) = tallies.iter().find(|(name, _)| &**name == "LIMITS").unwrap();
    assert_eq!((counted.allowed, counted.denied), (4, 3));
}

#[test]
fn what_a_bucket_states_is_its_rate_and_what_it_holds_is_its_burst() {
    let service = start();
    let limits = json!({"limit": 10, "window_seconds": 3_600, "algorithm": "token_bucket", "burst": 3});
    let reply = service.post(DECISIONS, &asked("a", &limits).to_string());
    assert_eq!((&reply.body["limit"], &reply.body["remaining"]), (&json!(3), &json!(2)));
    assert_eq!(reply.header("ratelimit-policy"), "\"LIMITS\";q=10;w=3600");
}

#[test]
fn an_explanation_says_that_the_numbers_came_with_the_request_and_whether_they_decide() {
    let service = start();
    let limits = two().to_string().replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
    let path = format!("/v1/explain?client_id=a&resource=shop&limits={limits}");
    let explained = || service.get(&path).body;
    let first = explained();
    assert_eq!((&first["allowed"], &first["request_limits"]["limits"]), (&json!(true), &two()));
    assert_eq!(first["request_limits"]["decide"], true);
    assert_eq!(explained()["request_limits"]["verdict"]["allowed"], true);
    assert_eq!(
        answered(&service, &asked("a", &two()), 2).0,
        [true, true],
        "explanations are charged nothing"
    );
    let full = explained();
    assert_eq!(
        (&full["allowed"], &full["request_limits"]["verdict"]["policy"]),
        (&json!(false), &json!("LIMITS"))
    );
    assert!(service.get("/v1/explain?client_id=a").body.get("request_limits").is_none());
    // Numbers of the client's own win, and the explanation says so.
    assert!(service.put("/v1/clients/a/limits", r#"{"default":{"limit":1}}"#).status < 300);
    let other = explained();
    assert_eq!((&other["request_limits"]["decide"], &other["allowed"]), (&json!(false), &json!(true)));
    for wrong in ["%7B%22limit%22:1%7D", "%7B%22limit%22:1,%22window_seconds%22:0%7D"] {
        assert_eq!(service.get(&format!("/v1/explain?client_id=a&limits={wrong}")).status, 422, "{wrong}");
    }
    // What is no object is an attribute as any other.
    assert_eq!(service.get("/v1/explain?client_id=a&limits=many").status, 200);
}

#[test]
fn a_policy_that_somebody_wrote_always_wins() {
    let policy = |mode: &str| {
        let document = json!({"name": "own", "limit": 1, "window_seconds": 3_600, "match": {"resource": "shop"}, "mode": mode});
        FileLayer { policies: vec![parse(&document, "").unwrap()], ..FileLayer::default() }
    };
    let more = json!({"limit": 100, "window_seconds": 1});
    let enforced = start_with(policy("enforce"), None);
    assert_eq!(answered(&enforced, &asked("a", &more), 2), (vec![true, false], json!("own")));
    let shadow = start_with(policy("shadow"), None);
    let none = json!({"limit": 0, "window_seconds": 1});
    assert_eq!(answered(&shadow, &asked("a", &none), 2).0, [true, true]);
    // The numbers of one client under the built-in policy are somebody's, too.
    let service = start();
    let own = json!({"default": {"limit": 1}}).to_string();
    assert!(service.put("/v1/clients/vip/limits", &own).status < 300);
    assert_eq!(answered(&service, &asked("vip", &more), 2), (vec![true, false], json!("default")));
    assert_eq!(answered(&service, &asked("other", &more), 2).1, "LIMITS");
}

#[test]
fn limits_of_a_request_let_nothing_in_that_on_no_match_denies() {
    let file = FileLayer {
        policies: vec![
            parse(&json!({"name": "p", "limit": 1, "window_seconds": 1, "match": {"resource": "x"}}), "")
                .unwrap(),
        ],
        ..FileLayer::default()
    };
    let service = Setup { file, on_no_match: "deny", ..Setup::default() }.start();
    let reply = service.post(DECISIONS, &asked("a", &two()).to_string()).body;
    assert_eq!((&reply["allowed"], &reply["no_match"]), (&json!(false), &json!(true)), "{reply}");
}

#[test]
fn a_batch_has_limits_by_item_and_is_refused_whole() {
    let service = start();
    let (own, none) = (asked("a", &two()), json!({"attributes": {"client_id": "a"}}));
    let reply = service.post(DECISIONS, &json!([own, none, own, own]).to_string()).body;
    let decided: Vec<_> =
        reply.as_array().unwrap().iter().map(|it| (&it["policy"], &it["allowed"])).collect();
    let (limits, default) = (json!("LIMITS"), json!("default"));
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(decided, [(&limits, &yes), (&default, &yes), (&limits, &yes), (&limits, &no)]);
    let wrong = asked("b", &json!({"limit": 1, "window_seconds": 0}));
    let refused = service.post(DECISIONS, &json!([asked("b", &two()), wrong]).to_string());
    assert_eq!(
        (refused.status, &refused.body["errors"][0]["pointer"]),
        (422, &json!("/1/limits/window_seconds"))
    );
    assert_eq!(answered(&service, &asked("b", &two()), 3).0, [true, true, false], "nothing was charged");
}

#[test]
fn fault_14_limits_of_a_request_have_the_bounds_of_a_policys() {
    let service = start();
    for (limits, pointer) in [
        (json!(5), "/limits"),
        (json!({"window_seconds": 1}), "/limits/limit"),
        (json!({"limit": 1}), "/limits/window_seconds"),
        (json!({"limit": -1, "window_seconds": 1}), "/limits/limit"),
        (json!({"limit": 1_000_000_001, "window_seconds": 1}), "/limits/limit"),
        (json!({"limit": 1, "window_seconds": 7_776_001}), "/limits/window_seconds"),
        (json!({"limit": 1, "window_seconds": 1, "burst": 2}), "/limits/burst"),
        (
            json!({"limit": 1, "window_seconds": 7_776_000, "algorithm": "token_bucket", "burst": 2}),
            "/limits/burst",
        ),
        (json!({"limit": 1, "window_seconds": 1, "algorithm": "concurrency"}), "/limits/algorithm"),
        (json!({"limit": 1, "window_seconds": 1, "algorithm": "calendar"}), "/limits/algorithm"),
        (json!({"limit": 1, "window_seconds": 1, "algorithm": "none"}), "/limits/algorithm"),
        (json!({"limit": 1_000_000, "window_seconds": 1, "algorithm": "sliding_log"}), "/limits/limit"),
    ] {
        for route in [DECISIONS, "/v1/refunds"] {
            let reply = service.post(route, &asked("a", &limits).to_string());
            let pointed = reply.body["errors"][0]["pointer"].as_str().unwrap_or_default();
            assert_eq!((reply.status, pointed), (422, pointer), "{route} {limits}: {}", reply.body);
        }
    }
}
