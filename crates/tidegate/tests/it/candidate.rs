//! A candidate configuration at the gateway of the built binary: judged on the requests that come, which it never touches, and
//! promoted as one change or dropped.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::edge::{metric, until};
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};
use tidegate_testkit::{Server, free_port};

const JSON: &str = "application/json";
const TOML: &str = "application/toml";

/// A server that says its name, for as long as the second value lives.
fn backend(name: &str) -> (SocketAddr, Server) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["stub", &address, "--body", name]);
    let server = Server::start(&mut command, "listening on");
    (address.parse().unwrap(), server)
}

fn start(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n{file}");
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

/// An upstream for each of two servers, and a route to the first of them.
fn two(one: SocketAddr, other: SocketAddr) -> String {
    format!(
        "upstream = [{{ name = \"v1\", servers = [\"{one}\"] }}, {{ name = \"v2\", servers = [\"{other}\"] }}]\n\
         [[route]]\nname = \"app\"\npath = \"/app/*\"\nupstream = \"v1\"\n"
    )
}

/// Status, entity tag and document.
fn call(
    service: &Tidegate,
    (method, path): (&str, &str),
    fields: &[(&str, &str)],
    body: &str,
) -> (u16, String, Value) {
    let mut request = http::Request::builder().method(method).uri(service.url(path));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut reply = agent().run(request.body(body.to_owned()).unwrap()).unwrap();
    let tag = reply.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
    let text = reply.body_mut().read_to_string().unwrap();
    (reply.status().as_u16(), tag, serde_json::from_str(&text).unwrap_or_default())
}

fn put(service: &Tidegate, path: &str, body: &Value) -> (u16, String, Value) {
    call(service, ("PUT", path), &[("content-type", JSON)], &body.to_string())
}

fn promote(service: &Tidegate) -> (u16, String, Value) {
    call(service, ("POST", "/v1/candidate/promote"), &[], "")
}

fn candidate(service: &Tidegate) -> (u16, String, Value) {
    call(service, ("GET", "/v1/candidate"), &[], "")
}

/// Status and body of a request to the gateway.
fn ask(service: &Tidegate, path: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let mut request = agent().get(format!("http://{}{path}", service.gateway[0]));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut reply = request.call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap().trim_end().to_owned())
}

/// Says that it is over when it is dropped, by a panic, too.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The places of what is wrong.
fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].as_str().unwrap()).collect()
}

/// The example of a difference: its path, both outcomes, how many requests.
fn example<'c>(found: &'c Value, difference: &str) -> [&'c Value; 4] {
    let examples = found["judged"]["examples"].as_array().unwrap();
    let example = examples.iter().find(|it| it["difference"] == difference).unwrap();
    ["path", "in_force", "candidate", "requests"].map(|name| &example[name])
}

#[test]
fn what_a_candidate_would_change_is_counted_with_examples_while_requests_go_where_they_went() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&format!(
        "{}[[route]]\nname = \"same\"\npath = \"/same\"\nupstream = \"v1\"\n\
         [[route]]\nname = \"members\"\npath = \"/members\"\nupstream = \"v1\"\n",
        two(one, other)
    ));
    let gone = json!({"path": "/gone", "upstream": "v1"});
    assert_eq!(put(&service, "/v1/routes/gone", &gone).0, 200);
    assert_eq!(candidate(&service).0, 404);
    let (_, _, issued) =
        call(&service, ("POST", "/v1/keys"), &[("content-type", JSON)], r#"{"consumer":"acme"}"#);
    let key = [("x-api-key", issued["key"].as_str().unwrap())];
    let file = "[[route]]\nname = \"app\"\npath = \"/app/*\"\nupstream = \"v2\"\n\
                [[route]]\nname = \"members\"\npath = \"/members\"\nupstream = \"v1\"\nauth = \"key\"\n\
                [[route]]\nname = \"new\"\npath = \"/new\"\nrespond = { status = 201 }\n\
                [remove]\nroute = [\"gone\"]\n";
    let (status, tag, said) = call(&service, ("PUT", "/v1/candidate"), &[("content-type", TOML)], file);
    assert_eq!((status, &said["candidate"]["remove"]["route"][0]), (200, &json!("gone")), "{said}");

    let v1 = (200, "v1".to_owned());
    for path in ["/app/a?token=hidden", "/app/a?token=hidden", "/app/b", "/gone", "/same", "/members"] {
        assert_eq!(ask(&service, path, &[]), v1, "{path} goes where it went");
    }
    assert_eq!(ask(&service, "/members", &key), v1);
    assert_eq!((ask(&service, "/new", &[]).0, ask(&service, "/nothing", &[]).0), (404, 404));
    let (status, tag_now, found) = candidate(&service);
    assert_eq!((status, tag_now), (200, tag));
    let expected = json!({"same": 2, "would_refuse": 2, "would_admit": 1, "other_upstream": 3, "other_reply": 0,
        "other_route": 0, "other_limits": 0, "other_options": 1});
    assert_eq!((&found["judged"]["by_difference"], &found["judged"]["requests"]), (&expected, &json!(9)));
    assert_eq!((&found["mistakes"], &found["judged"]["without_example"]), (&json!([]), &json!(0)));
    let (from, to) = (json!({"route": "app", "forward": "v1"}), json!({"route": "app", "forward": "v2"}));
    assert_eq!(example(&found, "other_upstream"), [&json!("/app/a"), &from, &to, &json!(3)]);
    let none = json!({"refuse": {"status": 404, "because": "no_route"}});
    let removed = json!({"route": "gone", "forward": "v1"});
    assert_eq!(example(&found, "would_refuse"), [&json!("/gone"), &removed, &none, &json!(1)]);
    let added = json!({"route": "new", "reply": 201});
    assert_eq!(example(&found, "would_admit"), [&json!("/new"), &none, &added, &json!(1)]);
    let refused = json!({"route": "members", "refuse": {"status": 401, "because": "no_key"}});
    assert!(found["judged"]["examples"].as_array().unwrap().iter().any(|it| it["candidate"] == refused));
    let text = found["judged"].to_string();
    assert!(!text.contains("hidden") && !text.contains(key[0].1), "{text}");
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    for (difference, count) in expected.as_object().unwrap() {
        let line = format!("tidegate_candidate_requests_total{{difference=\"{difference}\"}} {count}\n");
        assert!(page.contains(&line), "{line}");
    }

    // It is dropped, and nothing is judged.
    let dropped = call(&service, ("DELETE", "/v1/candidate"), &[], "");
    assert_eq!((dropped.0, candidate(&service).0), (204, 404));
    assert_eq!(ask(&service, "/app/a", &[]), v1);
    assert_eq!(metric(&service, "tidegate_candidate_requests_total{difference=\"other_upstream\"}"), 0);
}

#[test]
fn a_promotion_is_one_change_in_force_at_once_and_no_request_fails() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&two(one, other));
    assert_eq!(put(&service, "/v1/routes/gone", &json!({"path": "/gone", "upstream": "v1"})).0, 200);
    let body = json!({
        "upstream": [{"name": "v3", "servers": [other.to_string()]}],
        "route": [{"name": "app", "path": "/app/*", "upstream": "v3"}, {"name": "new", "path": "/new", "respond": {}}],
        "remove": {"route": ["gone"]}
    });
    let (status, tag, _) = put(&service, "/v1/candidate", &body);
    assert_eq!((status, tag.as_str()), (200, "\"2\""));
    let stale = [("if-match", "\"1\"")];
    assert_eq!(call(&service, ("POST", "/v1/candidate/promote"), &stale, "").0, 412);

    let (is_over, [old, new]) = (AtomicBool::new(false), [0, 0].map(AtomicUsize::new));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut was_new = false;
                while !is_over.load(Ordering::Acquire) {
                    let (status, said) = ask(&service, "/app/x", &[]);
                    assert_eq!(status, 200, "{said}");
                    assert!(!was_new || said == "v2", "it went back");
                    was_new = said == "v2";
                    if was_new { &new } else { &old }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _over = Over(&is_over);
        until("requests come", || old.load(Ordering::Relaxed) > 50);
        let this = [("if-match", tag.as_str())];
        let (status, _, said) = call(&service, ("POST", "/v1/candidate/promote"), &this, "");
        assert_eq!((status, &said["revision"]), (200, &json!(7)), "{said}");
        assert_eq!(ask(&service, "/app/x", &[]), (200, "v2".to_owned()), "in force when it is answered");
        assert_eq!((ask(&service, "/new", &[]).0, ask(&service, "/gone", &[]).0), (200, 404));
        until("requests come", || new.load(Ordering::Relaxed) > 50);
    });
    assert_eq!((candidate(&service).0, promote(&service).0), (404, 404), "there is none any more");
    let (_, _, audit) = call(&service, ("GET", "/v1/audit"), &[], "");
    let words =
        |row: &Value| ["action", "kind", "name"].map(|it| row[it].as_str().unwrap().to_owned()).join(" ");
    let rows: Vec<String> = audit.as_array().unwrap().iter().map(words).collect();
    let expected = [
        "put route gone",
        "put candidate candidate",
        "delete candidate candidate",
        "put upstream v3",
        "put route app",
        "put route new",
        "delete route gone",
    ];
    assert_eq!(rows, expected);
    assert!(audit.as_array().unwrap().iter().all(|row| row["actor"] == "local"));
}

#[test]
fn a_candidate_that_is_wrong_is_refused_with_the_places_of_its_mistakes() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&two(one, other));
    let app = || json!({"name": "app", "path": "/app/*", "upstream": "v2"});
    for (body, place) in [
        (json!({}), "/route"),
        (json!([]), ""),
        (json!({"routes": [app()]}), "/routes"),
        (json!({"base": {}, "route": [app()]}), "/base"),
        (json!({"route": [app(), {"name": "b", "upstrem": "v1"}]}), "/route/1/upstrem"),
        (json!({"route": [{"path": "/a", "respond": {}}]}), "/route/0/name"),
        (json!({"route": [app(), app()]}), "/route/1"),
        (json!({"route": [{"name": "b", "path": "/b", "upstream": "v9"}]}), "/route/0/upstream"),
        (json!({"route": [{"name": "b", "path": "/app/*", "upstream": "v1"}]}), "/route/0"),
        (
            json!({"route": [{"name": "b", "path": "/b", "upstream": "v1", "policies": ["none"]}]}),
            "/route/0/policies/0",
        ),
        (json!({"upstream": [{"name": "v1", "servers": []}]}), "/upstream/0/servers"),
        (json!({"remove": {"route": ["app"]}}), "/remove/route/0"),
        (json!({"remove": {"route": ["nothing"]}}), "/remove/route/0"),
        (json!({"remove": {"policy": ["default"]}}), "/remove/policy/0"),
        (json!({"remove": {"policies": ["default"]}}), "/remove/policies"),
    ] {
        let (status, _, problem) = put(&service, "/v1/candidate", &body);
        assert!(status == 422 && pointers(&problem).contains(&place), "{body}: {problem}");
    }
    let send =
        |kind: &str, body: &str| call(&service, ("PUT", "/v1/candidate"), &[("content-type", kind)], body);
    let (status, _, problem) = send(TOML, "[[route]]\nname = \"a\"\nname = \"b\"\n");
    assert!(
        status == 422 && problem["errors"][0]["detail"].as_str().unwrap().contains("line 3"),
        "{problem}"
    );
    assert_eq!((send("text/plain", "{}").0, send(JSON, "{").0), (415, 400));
    let large: Vec<_> =
        (0..151).map(|n| json!({"name": format!("r{n}"), "path": format!("/{n}"), "respond": {}})).collect();
    assert_eq!(put(&service, "/v1/candidate", &json!({ "route": large })).0, 422);
    assert_eq!(put(&service, "/v1/candidate", &json!({ "route": large[..150] })).0, 200);
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v1".to_owned()));
}

#[test]
fn a_promotion_undoes_nobodys_work_and_a_candidate_hinders_no_change() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&two(one, other));
    let to = |upstream: &str| json!({"path": "/app/*", "upstream": upstream});
    let mut named = to("v2");
    named["name"] = json!("app");
    let body = json!({ "route": [named] });
    assert_eq!(put(&service, "/v1/candidate", &body).0, 200);
    let repaired = json!({"path": "/app/*", "upstream": "v1", "timeout_seconds": 9});
    assert_eq!(put(&service, "/v1/routes/app", &repaired).0, 200);
    assert_eq!(promote(&service).0, 412, "it was changed since");
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v1".to_owned()));
    assert_eq!(put(&service, "/v1/candidate", &body).0, 200);
    assert_eq!(promote(&service).0, 200);
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v2".to_owned()));

    // What only the candidate needs can be taken away: it is the candidate that goes.
    assert_eq!(put(&service, "/v1/upstreams/v3", &json!({"servers": [other.to_string()]})).0, 200);
    let late = json!({"route": [{"name": "late", "path": "/late", "upstream": "v3"}]});
    let (status, tag, _) = put(&service, "/v1/candidate", &late);
    assert_eq!(status, 200);
    assert_eq!(call(&service, ("DELETE", "/v1/upstreams/v3"), &[], "").0, 204);
    let (_, _, found) = candidate(&service);
    assert_eq!(found["judged"], Value::Null);
    assert!(found["mistakes"][0].as_str().unwrap().contains("/route/0/upstream"), "{found}");
    let (_, _, aside) = call(&service, ("GET", "/v1/set-aside"), &[], "");
    assert_eq!(aside["set_aside"][0]["kind"], "candidate", "{aside}");
    assert_eq!(promote(&service).0, 422);
    assert_eq!(ask(&service, "/late", &[]).0, 404);

    // It is there after a restart, and judged again when it goes with what is in force.
    service.signal("TERM");
    let (folder, _) = service.wait_keeping_data();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    assert_eq!(candidate(&service).1, tag);
    assert_eq!(put(&service, "/v1/upstreams/v3", &json!({"servers": [other.to_string()]})).0, 200);
    assert_eq!(ask(&service, "/late", &[]).0, 404);
    let (_, _, found) = candidate(&service);
    assert_eq!(found["judged"]["by_difference"]["would_admit"], 1, "{found}");
    assert_eq!(promote(&service).0, 200);
    assert_eq!(ask(&service, "/late", &[]), (200, "v2".to_owned()));
}

#[test]
fn a_promotion_waits_for_as_many_requests_as_are_asked_for() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&two(one, other));
    let body = json!({"route": [{"name": "app", "path": "/app/*", "upstream": "v2"}]});
    let promote = |judged: &str, fields: &[(&str, &str)]| {
        call(&service, ("POST", &format!("/v1/candidate/promote?judged={judged}")), fields, "")
    };
    assert_eq!(promote("1", &[]).0, 404, "there is none");
    assert_eq!(put(&service, "/v1/candidate", &body).0, 200);
    for _ in 0..2 {
        assert_eq!(ask(&service, "/app/a", &[]), (200, "v1".to_owned()));
    }
    let (status, _, problem) = promote("3", &[]);
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 412 && detail.contains("judged 2 requests") && detail.contains("of 3 "), "{problem}");
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v1".to_owned()), "nothing has changed");
    assert_eq!(promote("many", &[]).0, 422);
    assert_eq!(promote("3", &[("if-match", "\"9\"")]).0, 412, "that is another version");
    assert_eq!(promote("3", &[]).0, 200);
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v2".to_owned()));
}

#[test]
fn a_promotion_undoes_no_change_of_the_file() {
    let ((one, _one), (other, _other)) = (backend("v1"), backend("v2"));
    let service = start(&two(one, other));
    let body = json!({"route": [{"name": "app", "path": "/app/*", "upstream": "v2"}]});
    assert_eq!(put(&service, "/v1/candidate", &body).0, 200);
    // Somebody closes the route in the file.
    let path = service.path().join("tidegate.toml");
    let closed = fs::read_to_string(&path).unwrap() + "maintenance = { enabled = true }\n";
    fs::write(service.path().join("new.toml"), &closed).unwrap();
    fs::rename(service.path().join("new.toml"), &path).unwrap();
    service.signal("HUP");
    until("the route is closed", || ask(&service, "/app/a", &[]).0 == 503);
    let (status, _, said) = promote(&service);
    let why = "route \"app\" has changed in the configuration file since";
    assert_eq!((status, said["detail"].as_str()), (412, Some(why)), "{said}");
    assert_eq!(ask(&service, "/app/a", &[]).0, 503);
    // Who has seen that puts the candidate again.
    assert_eq!(put(&service, "/v1/candidate", &body).0, 200);
    assert_eq!(promote(&service).0, 200);
    assert_eq!(ask(&service, "/app/a", &[]), (200, "v2".to_owned()));
}
