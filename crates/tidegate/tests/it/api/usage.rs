//! Reset of what a client has used, the clients with numbers of their own, those nearest to a limit, and those denied.

use serde_json::{Value, json};
use tidegate_algorithms::policy::parse;
use tidegate_limiter::policy_set::FileLayer;

use crate::api::support::{Running, start_with};

fn start() -> Running {
    let documents = [
        json!({"name": "per-client", "algorithm": "fixed_window", "limit": 2, "window_seconds": 7_776_000}),
        json!({"name": "per-path", "algorithm": "sliding_log", "limit": 2, "window_seconds": 7_776_000,
               "key": ["client_id", "path"]}),
        json!({"name": "everyone", "algorithm": "token_bucket", "limit": 100, "window_seconds": 7_776_000,
               "key": []}),
    ];
    let policies = documents.iter().map(|document| parse(document, "").unwrap()).collect();
    let own = |client: &str| (client.to_owned(), "per-client".to_owned(), json!({"limit": 3}));
    start_with(
        FileLayer { policies, overrides: vec![own("m"), own("b")], ..FileLayer::default() },
        Some("a-token-of-sixteen-bytes"),
    )
}

fn spend(service: &Running, client: &str) -> Value {
    let attributes = json!({"attributes": {"client_id": client, "path": "/a"}});
    service.post("/v1/decisions", &attributes.to_string()).body
}

fn used_up(service: &Running, client: &str) {
    assert_eq!([(); 3].map(|()| spend(service, client)["allowed"] == true), [true, true, false]);
}

#[test]
fn a_reset_lets_one_client_start_anew_under_one_policy_or_all() {
    let service = start();
    used_up(&service, "x");
    used_up(&service, "y");
    let reset = service.delete("/v1/clients/x/usage?policy=per-client");
    assert_eq!((reset.status, &reset.body), (200, &json!({"reset": ["per-client"], "not_reset": []})));
    assert_eq!(spend(&service, "x")["policy"], "per-path", "it is still used up");
    let missing = json!([{"policy": "per-path", "because_of": "path"}]);
    assert_eq!(
        service.delete("/v1/clients/x/usage").body,
        json!({"reset": ["per-client"], "not_reset": missing})
    );
    let all = service.delete("/v1/clients/x/usage?path=/a&client_id=y");
    assert_eq!(all.body, json!({"reset": ["per-client", "per-path"], "not_reset": []}));
    let audit = service.get("/v1/audit").body;
    let last = &audit.as_array().unwrap()[2];
    assert_eq!(
        [&last["actor"], &last["action"], &last["kind"], &last["name"]],
        ["admin", "delete", "usage", "x"]
    );
    assert_eq!((&last["before"], &last["after"]), (&json!({"policies": all.body["reset"]}), &json!(null)));
    used_up(&service, "x");
    assert_eq!(spend(&service, "y")["allowed"], false, "nobody else starts anew");
    let everyone = service.get("/v1/explain?client_id=x&cost=0").body;
    assert_eq!(
        everyone["policies"][2]["verdict"]["remaining"], 94,
        "a limit that others share is left alone"
    );
}

#[test]
fn a_reset_needs_the_admin_and_a_policy_that_is_keyed_on_the_client() {
    let service = start();
    assert_eq!(service.without_token("DELETE", "/v1/clients/x/usage", None), 401);
    assert_eq!(service.without_token("GET", "/v1/nearest-clients", None), 401);
    assert_eq!(service.without_token("GET", "/v1/clients", None), 401);
    for policy in ["nowhere", "everyone"] {
        assert_eq!(service.delete(&format!("/v1/clients/x/usage?policy={policy}")).status, 404, "{policy}");
    }
    assert_eq!(service.delete(&format!("/v1/clients/{}/usage", "x".repeat(513))).status, 422);
    assert_eq!(service.get("/v1/audit").body, json!([]), "nothing was reset");
}

#[test]
fn clients_with_numbers_of_their_own_are_listed_in_pages() {
    let service = start();
    for client in ["a", "m", "z"] {
        let body = json!({"per-path": {"limit": 5}});
        assert!(service.put(&format!("/v1/clients/{client}/limits"), &body.to_string()).status < 300);
    }
    let names = |query: &str| -> Vec<String> {
        let page = service.get(&format!("/v1/clients{query}")).body;
        page.as_array().unwrap().iter().map(|it| it["client_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(""), ["a", "b", "m", "z"]);
    assert_eq!(names("?limit=2"), ["a", "b"]);
    assert_eq!(names("?limit=2&after=b"), ["m", "z"]);
    assert_eq!(names("?after=z"), [""; 0]);
    let both = &service.get("/v1/clients?limit=1&after=b").body[0];
    assert_eq!(both["limits"], json!({"per-client": {"limit": 3}, "per-path": {"limit": 5}}));
    assert_eq!(both["etag"], service.get("/v1/clients/m/limits").header("etag"));
    assert!(service.get("/v1/clients?limit=1&after=a").body[0].get("etag").is_none(), "the file's alone");
    for query in ["?limit=0", "?limit=1001", "?limit=x"] {
        assert_eq!(service.get(&format!("/v1/clients{query}")).status, 422, "{query}");
    }
}

#[test]
fn the_clients_nearest_to_a_limit_are_found() {
    let service = start();
    let shadow =
        json!({"algorithm": "fixed_window", "limit": 3, "window_seconds": 7_776_000, "mode": "shadow"});
    assert_eq!(service.put("/v1/policies/in-shadow", &shadow.to_string()).status, 200);
    // Decisions are sampled: enough of them for one to be in the sample.
    for _ in 0..200 {
        spend(&service, "busy");
    }
    let near = service.get("/v1/nearest-clients").body;
    let of = |policy: &str| near.as_array().unwrap().iter().find(|it| it["policy"] == policy).cloned();
    let busy = of("per-client").unwrap();
    assert_eq!(
        (&busy["client_id"], &busy["limit"], &busy["remaining"], &busy["mode"]),
        (&json!("busy"), &json!(2), &json!(0), &json!("enforce"))
    );
    assert_eq!(of("in-shadow").unwrap()["mode"], "shadow");
    assert!(of("everyone").is_none(), "98 of 100 are left");
    assert_eq!(service.delete("/v1/clients/busy/usage?path=/a").status, 200);
    assert_eq!(service.get("/v1/nearest-clients").body, json!([]));
}

#[test]
fn the_list_of_denied_clients_says_enough_to_ask_why() {
    let narrow = json!({"name": "narrow", "key": ["client_id", "path"], "match": {"resource": "api"}, "limit": 1, "window_seconds": 600});
    let policies = vec![parse(&narrow, "").unwrap()];
    let service = start_with(FileLayer { policies, ..FileLayer::default() }, None);
    let body =
        json!({"attributes": {"client_id": "u1", "resource": "api", "path": "/v1/pay", "token": "secret"}});
    for _ in 0..4 {
        service.post("/v1/decisions", &body.to_string());
    }
    let listed = service.get("/v1/denied-clients").body;
    let first = &listed[0];
    assert_eq!((&first["client_id"], &first["denied"]), (&json!("u1"), &json!(3)));
    assert_eq!(first["policy"], "narrow");
    assert_eq!(
        first["attributes"],
        json!({"resource": "api", "path": "/v1/pay"}),
        "what the policy looks at"
    );
    // It is counted from its first denial on.
    assert_eq!(first["last_minute"], json!({"allowed": 0, "denied": 3}));
    // What the client's name alone does not say.
    assert_eq!(service.get("/v1/explain?client_id=u1").body["allowed"], true);
    let why = service.get("/v1/explain?client_id=u1&resource=api&path=/v1/pay").body;
    assert_eq!(why["allowed"], false, "{why}");
    let other = json!({"attributes": {"client_id": "u1", "resource": "api", "path": "/other"}});
    service.post("/v1/decisions", &other.to_string());
    let listed = service.get("/v1/denied-clients").body;
    assert_eq!(listed[0]["last_minute"], json!({"allowed": 1, "denied": 3}));
}
