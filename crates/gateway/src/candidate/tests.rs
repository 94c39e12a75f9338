//! What a candidate finds of single requests, beside a table of routes as the site has it: each difference apart from the
//! others, both ways round; what is kept of them, and for how long. That requests are left alone is shown on sockets, by
//! `crates/tidegate/tests/it/candidate.rs`.

use std::net::{IpAddr, Ipv4Addr};

use tidegate_access::keys::ApiKeys;
use tidegate_net::limits::MissingPolicy;

use super::*;
use crate::config::{GatewayConfig, StickyBy};
use crate::routes::target::TargetPath;

fn served(routes: &Value) -> GatewayConfig {
    let upstreams = ["v1", "v2"].map(|name| json!({"name": name, "servers": ["http://127.0.0.1:1"]}));
    GatewayConfig::check(&upstreams, routes.as_array().unwrap(), &["few", "many"]).unwrap()
}

/// A candidate beside what is in force, and the latter.
struct Both {
    candidate: Arc<Candidate>,
    in_force: Vec<Route>,
    table: Table,
    keys: ApiKeys,
}

impl Both {
    fn new(in_force: &Value, candidate: &Value, change: impl FnOnce(&mut CandidateConfig)) -> Self {
        let in_force = served(in_force);
        let mut config = CandidateConfig { routes: served(candidate).routes, ..CandidateConfig::default() };
        change(&mut config);
        let candidate = Candidate::beside(&in_force, &Arc::new(config), None, Wall(0));
        let table = Table::new(in_force.routes.iter().map(|route| &**route));
        let in_force = in_force.routes.iter().map(|config| Route::judged_only(Arc::clone(config))).collect();
        Self { candidate, in_force, table, keys: ApiKeys::new("") }
    }

    fn ask(&self, request: http::request::Builder) {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let path = TargetPath::read(parts.uri.path()).unwrap();
        let asking = JudgedRequest {
            host: "shop.example",
            path: &path,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            tls_name: None,
            parts: &parts,
            keys: &self.keys,
            missing_policy: MissingPolicy::Deny,
        };
        let accepts = |position: usize| self.in_force[position].accepts(&parts);
        let found = self.table.find("shop.example", &path.normal, accepts);
        self.candidate.compare(&asking, found.map(|position| (position, &self.in_force[position])));
    }

    /// The one difference that was found, with both outcomes as JSON; none: it was the same.
    fn found(&self) -> Option<(&'static str, Value, Value)> {
        let stats = self.candidate.stats();
        let counted: Vec<_> = stats.counts.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted.len(), 1, "{stats:?}");
        let example = stats.examples.first();
        assert_eq!(example.map_or("same", |example| example.difference), counted[0].0);
        example.map(|it| (it.difference, json!(it.in_force), json!(it.candidate)))
    }
}

fn difference(in_force: Value, candidate: Value) -> Option<(&'static str, Value, Value)> {
    let both = Both::new(&in_force, &candidate, |_| {});
    both.ask(http::Request::post("/cart?secret=x").header("content-length", "100").header("x-a", "b"));
    both.found()
}

fn route(more: Value) -> Value {
    let mut route = json!({"name": "app", "upstream": "v1"});
    for (key, value) in more.as_object().unwrap() {
        route[key] = value.clone();
    }
    if route["respond"].is_object() {
        route.as_object_mut().unwrap().remove("upstream");
    }
    json!([route])
}

#[test]
fn each_difference_is_told_from_the_others() {
    let plain = || route(json!({}));
    let v1 = json!({"route": "app", "forward": "v1"});
    let none = json!({"refuse": {"status": 404, "because": "no_route"}});
    assert_eq!(difference(plain(), plain()), None);
    assert_eq!(difference(json!([]), json!([])), None, "refused by both");
    let refused = |status: u16, because: &str| json!({"route": "app", "refuse": {"status": status, "because": because}});
    for (candidate, word, outcome) in [
        (json!([]), "would_refuse", none.clone()),
        (route(json!({"method": "GET"})), "would_refuse", none.clone()),
        (route(json!({"auth": "key"})), "would_refuse", refused(401, "no_key")),
        (
            route(json!({"auth": "key", "key_in": ["query:secret"]})),
            "would_refuse",
            refused(401, "unknown_key"),
        ),
        (route(json!({"max_body_bytes": 99})), "would_refuse", refused(413, "body_too_large")),
        (route(json!({"max_header_bytes": 10})), "would_refuse", refused(431, "head_too_large")),
        (route(json!({"maintenance": {}})), "would_refuse", refused(503, "maintenance")),
        (route(json!({"upstream": "v2"})), "other_upstream", json!({"route": "app", "forward": "v2"})),
        (route(json!({"name": "other"})), "other_route", json!({"route": "other", "forward": "v1"})),
        (route(json!({"respond": {"status": 410}})), "other_reply", json!({"route": "app", "reply": 410})),
        (route(json!({"policies": ["few"]})), "other_limits", v1.clone()),
        (route(json!({"timeout_seconds": 1})), "other_options", v1.clone()),
    ] {
        let expected = (word, v1.clone(), outcome.clone());
        assert_eq!(difference(plain(), candidate.clone()), Some(expected), "{candidate}");
        // And the other way round.
        let word = if word == "would_refuse" { "would_admit" } else { word };
        assert_eq!(difference(candidate.clone(), plain()), Some((word, outcome, v1.clone())), "{candidate}");
    }
    let respond = |body: &str| route(json!({"respond": {"body": body}}));
    assert_eq!(difference(respond("a"), respond("b")).unwrap().0, "other_reply");
    assert_eq!(difference(json!([]), route(json!({"maintenance": {}}))).unwrap().0, "other_reply");
}

#[test]
fn a_request_is_judged_as_it_is_when_its_key_is_taken_off() {
    let keyed = |upstream: &str| route(json!({"auth": "key", "max_header_bytes": 90, "upstream": upstream}));
    let both = Both::new(&route(json!({})), &keyed("v2"), |_| {});
    both.ask(http::Request::get("/").header("x-api-key", "k".repeat(200)));
    let refused = json!({"route": "app", "refuse": {"status": 401, "because": "unknown_key"}});
    assert_eq!(both.found().unwrap().2, refused, "not 431: the key is not counted");
}

#[test]
fn a_change_that_a_request_does_not_meet_is_none_for_it() {
    let both = |candidate: Value| difference(route(json!({})), candidate);
    assert_eq!(both(route(json!({"method": ["POST", "GET"]}))), None);
    assert_eq!(both(route(json!({"maintenance": {"allow": ["127.0.0.0/8"]}}))), None);
    assert_eq!(both(route(json!({"canary": {"upstream": "v2", "percent": 0}}))), None);
    let canary = route(json!({"canary": {"upstream": "v2", "percent": 0, "header": {"x-a": "b"}}}));
    assert_eq!(both(canary).unwrap().0, "other_upstream");
    let split = |first: u64| {
        let shares =
            json!([{"upstream": "v1", "percent": first}, {"upstream": "v2", "percent": 100 - first}]);
        json!([{"name": "app", "split": shares}])
    };
    assert_eq!(both(split(100)), None);
    let v2 = json!({"route": "app", "forward": "v2"});
    assert_eq!(both(split(0)).unwrap(), ("other_upstream", json!({"route": "app", "forward": "v1"}), v2));
    let mut other = route(json!({"name": "b", "path": "/other", "upstream": "v2"}));
    other.as_array_mut().unwrap().extend(route(json!({})).as_array().unwrap().clone());
    assert_eq!(both(other), None);
}

#[test]
fn an_upstream_of_other_servers_is_another_and_a_missing_policy_a_refusal() {
    let (plain, limited) = (route(json!({})), route(json!({"policies": ["few"]})));
    let upstream = Both::new(&plain, &plain, |config| config.changed_upstreams.extend(["v1".into()]));
    upstream.ask(http::Request::get("/"));
    assert_eq!(upstream.found().unwrap().0, "other_upstream");
    let other = Both::new(&plain, &plain, |config| config.changed_upstreams.extend(["v2".into()]));
    other.ask(http::Request::get("/"));
    assert_eq!(other.found(), None);
    let lacks = Both::new(&limited, &limited, |config| config.missing_policies.extend(["few".into()]));
    lacks.ask(http::Request::get("/"));
    let refused = json!({"route": "app", "refuse": {"status": 503, "because": "no_policy"}});
    assert_eq!(lacks.found().unwrap().2, refused);
}

#[test]
fn examples_are_of_different_outcomes_bounded_and_without_queries() {
    let routes = |upstream: &str| {
        let route =
            |n: usize| json!({"name": format!("r{n}"), "path": format!("/{n}"), "upstream": upstream});
        Value::Array((0..MAX_EXAMPLES + 2).map(route).collect())
    };
    let both = Both::new(&routes("v1"), &routes("v2"), |_| {});
    for round in 0..3 {
        for n in 0..MAX_EXAMPLES + 2 {
            both.ask(http::Request::get(format!("/{n}?token=secret{round}")));
        }
    }
    let stats = both.candidate.stats();
    assert_eq!((stats.examples.len(), stats.without_example), (MAX_EXAMPLES, 6));
    assert!(stats.examples.iter().all(|example| example.requests == 3));
    let said = stats.to_json();
    assert_eq!((&said["requests"], &said["by_difference"]["other_upstream"]), (&json!(36), &json!(36)));
    assert!(!said.to_string().contains("secret"), "{said}");
    assert_eq!(said["since"], "1970-01-01T00:00:00Z");
}

#[test]
fn the_counts_stay_until_one_of_both_sides_changes() {
    let (plain, other) = (served(&route(json!({}))), served(&route(json!({"timeout_seconds": 1}))));
    let config = |revision: u64| {
        Arc::new(CandidateConfig { revision, routes: other.routes.clone(), ..CandidateConfig::default() })
    };
    let first = Candidate::beside(&plain, &config(1), None, Wall(1));
    let again = Candidate::beside(&served(&route(json!({}))), &config(1), Some(&first), Wall(2));
    assert!(Arc::ptr_eq(&first, &again), "nothing has changed");
    assert!(!Arc::ptr_eq(&first, &Candidate::beside(&plain, &config(2), Some(&first), Wall(2))));
    assert!(!Arc::ptr_eq(&first, &Candidate::beside(&other, &config(1), Some(&first), Wall(2))));
    let sticky = route(json!({"canary": {"upstream": "v2", "percent": 1, "sticky_by": "cookie:sid"}}));
    let split = served(&sticky).routes[0].split.clone().unwrap();
    assert_eq!(split.sticky_by, StickyBy::Cookie("sid".into()));
    assert_eq!(
        rest(&plain.routes[0], &served(&sticky).routes[0]),
        Difference::Same,
        "judged for each request"
    );
}

#[test]
fn a_preflight_that_passes_without_credentials_would_be_admitted() {
    let route =
        |skips: bool| json!([{"name": "a", "upstream": "v1", "auth": "key", "skip_auth_preflight": skips}]);
    let asked = |fields: &[(&str, &str)]| {
        let both = Both::new(&route(false), &route(true), |_| {});
        let request = http::Request::options("/cart").header("origin", "https://a.example");
        both.ask(fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)));
        both.found().map(|(difference, ..)| difference)
    };
    assert_eq!(asked(&[("access-control-request-method", "PUT")]), Some("would_admit"));
    assert_eq!(asked(&[]), None, "both ask for a key");
}
