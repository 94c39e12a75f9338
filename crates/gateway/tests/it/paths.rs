//! Which path each one goes by, of the same requests on raw sockets: the route, the policies, the service that says whose
//! requests are, the server, and the log. FAULTS 54, and decision 0315.
//!
//! Over 400 lines because the table is read from top to bottom.

use std::fs;
use std::sync::{Arc, Mutex};

use crate::support::{Backend, PATIENCE, TestGateway, config, reply, status};
use serde_json::{Value, json};
use tidegate_gateway::access_log::{AccessLog, AccessLogSettings, Destination, LineFormat};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::{LimitedRequest, Limits, LimitsAnswer, Ruling};
use tidegate_gateway::service::{Gateway, GatewaySettings};
use tidegate_net::clock::monotonic;
use tidegate_wire::path::readings;

/// A target, and what becomes of it.
struct Row {
    host: &'static str,
    target: &'static str,
    /// The route that took it, or the status of who refused it.
    route: &'static str,
    /// The path that policies saw.
    path: &'static str,
    /// Its other reading, which they saw, too.
    other: Option<&'static str>,
    /// What the service that authenticates clients was asked about, where the route has one.
    judged: Option<&'static str>,
    /// What the server was asked for.
    server: &'static str,
}

const fn row(host: &'static str, target: &'static str, route: &'static str, path: &'static str) -> Row {
    Row { host, target, route, path, other: None, judged: None, server: target }
}

impl Row {
    const fn server(self, server: &'static str) -> Self {
        Self { server, ..self }
    }

    const fn or(self, other: &'static str) -> Self {
        Self { other: Some(other), ..self }
    }

    /// The service and the server heard the same.
    const fn both(self, target: &'static str) -> Self {
        Self { judged: Some(target), server: target, ..self }
    }

    const fn judged(self, judged: &'static str) -> Self {
        Self { judged: Some(judged), ..self }
    }
}

const fn refused(host: &'static str, target: &'static str) -> Row {
    row(host, target, "400", "").server("")
}

const PLAIN: &str = "plain.example";
const KEPT: &str = "kept.example";
const MERGED: &str = "merged.example";
const STRIPPED: &str = "stripped.example";
const JUDGED: &str = "judged.example";
const STORE: &str = "store.example";

const ROWS: &[Row] = &[
    // Dot segments in any spelling are resolved before anybody sees the path.
    row(PLAIN, "/admin/x", "admin", "/admin/x"),
    row(PLAIN, "/admin/x?y=/../z%2F", "admin", "/admin/x"),
    row(PLAIN, "/public/../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public/../admin/x?y", "admin", "/admin/x").server("/admin/x?y"),
    row(PLAIN, "/public/%2e%2e/admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public/%2E./admin/x;v=1/", "admin", "/admin/x").server("/admin/x;v=1/"),
    row(PLAIN, "/public/..;a/admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public/./../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public//../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public/a/../../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "/public/;p/../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "//public/../admin//x", "admin", "/admin/x").server("//admin//x"),
    row(PLAIN, "http://plain.example/public/../admin/x", "admin", "/admin/x").server("/admin/x"),
    row(PLAIN, "http://plain.example/admin//x", "admin", "/admin/x").server("/admin//x"),
    row(PLAIN, "/a/.", "rest", "/a").server("/a/"),
    row(PLAIN, "/a/b/..", "rest", "/a").server("/a/"),
    row(PLAIN, "/a/..", "rest", "/").server("/"),
    row(PLAIN, "/a%2Fb/../admin", "admin", "/admin").server("/admin"),
    refused(PLAIN, "/.."),
    refused(PLAIN, "/a/../../admin/x"),
    // Whatever else a path is goes on byte for byte, and is decided on in normal form.
    row(PLAIN, "//admin/x", "admin", "/admin/x"),
    row(PLAIN, "/admin//x", "admin", "/admin/x"),
    row(PLAIN, "/admin/x/", "admin", "/admin/x"),
    row(PLAIN, "/admin;v=1/x;w=2/", "admin", "/admin/x"),
    row(PLAIN, "/;a/admin/x", "admin", "/admin/x"),
    row(PLAIN, "/%61dmin/%78", "admin", "/admin/x"),
    row(PLAIN, "/ADMIN/x", "rest", "/ADMIN/x"),
    row(PLAIN, "/", "rest", "/"),
    row(PLAIN, "//", "rest", "/"),
    row(PLAIN, "/v1%2e0/x;y=1", "rest", "/v1.0/x"),
    row(PLAIN, "/file.%2Etar/x;y", "rest", "/file..tar/x"),
    row(PLAIN, "/a%2e/...", "rest", "/a./..."),
    row(PLAIN, "/bucket//key/", "rest", "/bucket/key"),
    row(PLAIN, "/web/2020/http://example.com/", "rest", "/web/2020/http:/example.com"),
    row(PLAIN, "/a;v=1/%41//x;p=2/", "rest", "/a/A/x"),
    row(PLAIN, "/a%20b%25", "rest", "/a%20b%25"),
    row(PLAIN, "/caf%c3%a9", "rest", "/caf%C3%A9"),
    // A route is found however its characters are spelt, in the request and in the route.
    row(PLAIN, "/v1/things:cancel", "verb", "/v1/things:cancel"),
    row(PLAIN, "/v1/things%3acancel", "verb", "/v1/things:cancel"),
    row(PLAIN, "/v1/things%3Acancel/", "verb", "/v1/things:cancel"),
    row(PLAIN, "/%40me/x", "me", "/@me/x"),
    row(PLAIN, "/@me/x", "me", "/@me/x"),
    row(PLAIN, "/th%c3%a9/x", "the", "/th%C3%A9/x"),
    row(PLAIN, "/[a]|{b}", "rest", "/%5Ba%5D%7C%7Bb%7D"),
    row(PLAIN, "/v1/things%253Acancel", "rest", "/v1/things%253Acancel"),
    row(PLAIN, "/50%25%32%65", "rest", "/50%252e"),
    row(PLAIN, "/%252e%252e/admin", "rest", "/%252e%252e/admin"),
    // Encoded separators go on as they came where the route is the same by both readings.
    row(PLAIN, "/@scope%2fname", "rest", "/@scope%2Fname").or("/@scope/name"),
    row(PLAIN, "/api/v4/projects/a%2Fb%2Fc/x", "rest", "/api/v4/projects/a%2Fb%2Fc/x")
        .or("/api/v4/projects/a/b/c/x"),
    row(PLAIN, "/api/exchanges/%2F/x", "rest", "/api/exchanges/%2F/x").or("/api/exchanges/x"),
    row(PLAIN, "/a%5Cb", "rest", "/a%5Cb").or("/a/b"),
    row(PLAIN, "/a\\b", "rest", "/a\\b").or("/a/b"),
    row(PLAIN, "/admin/a%2Fb", "admin", "/admin/a%2Fb").or("/admin/a/b"),
    row(PLAIN, "/admin/x;v=%2F", "admin", "/admin/x"),
    refused(PLAIN, "/admin%2Fx"),
    refused(PLAIN, "/admin%5cx"),
    refused(PLAIN, "/admin\\x"),
    refused(PLAIN, "/%2Fadmin/x"),
    refused(PLAIN, "/%5cadmin/x"),
    refused(PLAIN, "/a%2Fb%5Cc"),
    refused(PLAIN, "/public/..%2Fadmin/x"),
    refused(PLAIN, "/public%2F..%2Fadmin/x"),
    refused(PLAIN, "/public/%2e%2e%5cadmin/x"),
    refused(PLAIN, "/public;x=%2F../admin/x"),
    refused(PLAIN, "/admin/..;a%2fx"),
    // On these servers disagree in ways that nobody needs.
    refused(PLAIN, "/admin%00x"),
    refused(PLAIN, "/admin%0ax"),
    refused(PLAIN, "/admin%zz"),
    refused(PLAIN, "/100%"),
    // The route says that its servers take them for a part of a name.
    row(KEPT, "/admin%2Fx", "kept", "/admin%2Fx").or("/admin/x"),
    row(KEPT, "/a%2Fb%5Cc", "kept", "/a%2Fb%5Cc").or("/a/b/c"),
    refused(KEPT, "/public%2F..%2Fadmin/x"),
    // It says that several slashes are one to them.
    row(MERGED, "/a//b/;x///", "merged", "/a/b").server("/a/b/;x/"),
    row(MERGED, "//a", "merged", "/a").server("/a"),
    refused(MERGED, "/a%2Fb"),
    // It takes a prefix off, however that is spelt.
    row(STRIPPED, "/api", "stripped", "/api").server("/"),
    row(STRIPPED, "/api/x/", "stripped", "/api/x").server("/x/"),
    row(STRIPPED, "/api//x//y?z", "stripped", "/api/x/y").server("/x//y?z"),
    row(STRIPPED, "//api;v=1/x;w=2", "stripped", "/api/x").server("/x;w=2"),
    row(STRIPPED, "/%61pi/%78", "stripped", "/api/x").server("/%78"),
    row(STRIPPED, "/a/../api/x", "stripped", "/api/x").server("/x"),
    row(STRIPPED, "/api/a%2Fb", "stripped", "/api/a%2Fb").or("/api/a/b").server("/a%2Fb"),
    row(STRIPPED, "/api/../admin", "404", "").server(""),
    row(STRIPPED, "/api%2Fadmin", "404", "").server(""),
    // Another service decides by the path: what it hears is what the server hears, in one spelling.
    row(JUDGED, "/admin/x?y", "judged-admin", "/admin/x").both("/admin/x?y"),
    row(JUDGED, "/public/../admin/x", "judged-admin", "/admin/x").both("/admin/x"),
    row(JUDGED, "/public/%2e%2e/admin/x?y", "judged-admin", "/admin/x").both("/admin/x?y"),
    row(JUDGED, "/public/..;a/admin/x", "judged-admin", "/admin/x").both("/admin/x"),
    row(JUDGED, "//admin///x/", "judged-admin", "/admin/x").both("/admin/x/"),
    row(JUDGED, "/%61dmin/%78", "judged-admin", "/admin/x").both("/admin/x"),
    row(JUDGED, "/admin;v=1/x;w=2", "judged-admin", "/admin/x").both("/admin;v=1/x;w=2"),
    row(JUDGED, "/caf%c3%a9/", "judged", "/caf%C3%A9").both("/caf%C3%A9/"),
    refused(JUDGED, "/a%2Fb"),
    refused(JUDGED, "/admin%2fx"),
    // And where the route leaves it to both, both hear that.
    row(STORE, "/s3/a%2fb//%63", "store", "/s3/a%2Fb/c")
        .or("/s3/a/b/c")
        .judged("/s3/a%2Fb//c")
        .server("/a%2Fb//c"),
];

fn routes() -> Value {
    let ask = json!({"upstream": "judge", "path": "/verify", "timeout_seconds": 60});
    let route = |name: &str, host: &str, path: &str, more: Value| {
        let mut route =
            json!({"name": name, "host": host, "path": path, "upstream": "app", "policies": ["per-client"]});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        route
    };
    let judged = json!({"auth": "forward", "forward_auth": ask});
    let store = json!({"auth": "forward", "forward_auth": ask, "strip_prefix": "/s3", "encoded_slash": "keep",
        "merge_slashes": false});
    json!([
        route("admin", PLAIN, "/admin/*", json!({})),
        route("verb", PLAIN, "/v1/things:cancel", json!({})),
        route("me", PLAIN, "/%40me/*", json!({})),
        route("the", PLAIN, "/th\u{e9}/*", json!({})),
        route("rest", PLAIN, "/*", json!({})),
        route("kept-admin", KEPT, "/admin/*", json!({})),
        route("kept", KEPT, "/*", json!({"encoded_slash": "keep"})),
        route("merged", MERGED, "/*", json!({"merge_slashes": true, "encoded_slash": "refuse"})),
        route("stripped", STRIPPED, "/api/*", json!({"strip_prefix": "/api"})),
        route("judged-admin", JUDGED, "/admin/*", judged.clone()),
        route("judged", JUDGED, "/*", judged),
        route("store", STORE, "/s3/*", store),
    ])
}

/// Notes what it is asked about, and allows it.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<Mutex<Vec<Counted>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    route: String,
    path: String,
    other: Option<String>,
}

impl<'r> Limits<LimitedRequest<'r>> for Counting {
    fn charge<'a>(&'a self, _: &'a [Arc<str>], request: &'a LimitedRequest<'r>) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let [route, path] = [request.route, request.path].map(str::to_owned);
            let other = request.other_path.map(str::to_owned);
            self.0.lock().unwrap().push(Counted { route, path, other });
            Ruling::default()
        })
    }
}

/// The target of each request that it got from `seen` on.
fn targets(backend: &Backend, seen: usize) -> Vec<String> {
    backend.got()[seen..].iter().map(|got| got.line.split(' ').nth(1).unwrap().to_owned()).collect()
}

fn ask(gateway: &TestGateway, number: usize, row: &Row) -> u16 {
    let Row { host, target, .. } = row;
    let text =
        format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {number}\r\nconnection: close\r\n\r\n");
    status(&gateway.send(&text))
}

#[test]
fn fault_54_all_who_decide_on_a_path_and_all_who_serve_it_go_by_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let (app, judge) = (Backend::named("app"), Backend::start(|_| reply(200, &[], "")));
    let upstreams = json!([
        {"name": "app", "servers": [app.url()]},
        {"name": "judge", "servers": [judge.url()]}
    ]);
    let config: GatewayConfig = config(upstreams, routes());
    let destination = Destination::File { path: file.clone(), max_bytes: 1 << 30, keep: 1 };
    let settings = AccessLogSettings { destination, format: LineFormat::Json, rules: Vec::new() };
    let log = Some(AccessLog::open(settings).unwrap());
    let limits = Counting::default();
    let add = |gateway: Gateway| gateway.with_access_log(log);
    let gateway = TestGateway::start_with(limits.clone(), GatewaySettings::default(), &config, add);
    for (number, row) in ROWS.iter().enumerate() {
        let (at_app, at_judge) = (app.got().len(), judge.got().len());
        limits.0.lock().unwrap().clear();
        let (got, what) = (ask(&gateway, number, row), format!("{} {}", row.host, row.target));
        let counted = limits.0.lock().unwrap().clone();
        if let Ok(refused) = row.route.parse::<u16>() {
            assert_eq!(
                (got, counted, app.got().len(), judge.got().len()),
                (refused, vec![], at_app, at_judge),
                "{what}"
            );
            continue;
        }
        let other = row.other.map(str::to_owned);
        let expected = Counted { route: row.route.to_owned(), path: row.path.to_owned(), other };
        assert_eq!((got, counted), (200, vec![expected]), "{what}");
        assert_eq!(targets(&app, at_app), [row.server], "{what}");
        let asked: Vec<String> = judge.got()[at_judge..]
            .iter()
            .map(|got| got.field("x-forwarded-uri").unwrap().to_owned())
            .collect();
        assert_eq!(asked, row.judged.into_iter().collect::<Vec<_>>(), "{what}");
        // Whatever the server makes of what it got, a policy has seen it.
        let full = row.judged.unwrap_or(row.server);
        if row.route != "stripped" {
            let read = readings(full.as_bytes());
            assert_eq!(read.first, row.path.as_bytes(), "{what}");
            assert_eq!(read.other.as_deref(), row.other.map(str::as_bytes), "{what}");
        }
    }
    assert_eq!(log_lines(&file, ROWS.len()), ROWS.iter().map(expected_line).collect::<Vec<_>>());
}

/// What a line says: the target as it came, the route, and the path that was decided on where that is another one.
type Line = (String, Option<String>, Option<String>);

fn log_lines(file: &std::path::Path, count: usize) -> Vec<Line> {
    let begun = monotonic();
    let text = loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() >= count {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "the lines are written");
    };
    let mut lines: Vec<(usize, Line)> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let of = |name: &str| line[name].as_str().map(str::to_owned);
            let number = of("user_agent").unwrap().parse().unwrap();
            (number, (of("target").unwrap(), of("route"), of("path")))
        })
        .collect();
    lines.sort_unstable();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn expected_line(row: &Row) -> Line {
    let target = row.target.trim_start_matches("http://plain.example").to_owned();
    let raw = target.split('?').next().unwrap().to_owned();
    let is_refused = row.route.parse::<u16>().is_ok();
    let route = (!is_refused).then(|| row.route.to_owned());
    // A path that has no reading at all has no normal form to tell of.
    let path = tidegate_wire::path::without_dot_segments(raw.as_bytes()).ok();
    let path = path.map(|path| String::from_utf8(readings(&path).first.into_owned()).unwrap());
    (target, route, path.filter(|path| *path != raw))
}

#[test]
fn a_copy_of_a_request_is_asked_for_at_the_same_path() {
    let (app, copies) = (Backend::named("app"), Backend::named("copies"));
    let upstreams = json!([
        {"name": "app", "servers": [app.url()]},
        {"name": "copies", "servers": [copies.url()]}
    ]);
    let route = json!({"name": "all", "upstream": "app", "mirror": {"upstream": "copies"}});
    let config = config(upstreams, json!([route]));
    let gateway = TestGateway::start(Counting::default(), GatewaySettings::default(), &config);
    let row = row(PLAIN, "/public/../a%2Fb//c/", "all", "");
    assert_eq!(ask(&gateway, 0, &row), 200);
    let begun = monotonic();
    while copies.got().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the copy comes");
    }
    assert_eq!(
        (targets(&app, 0), targets(&copies, 0)),
        (vec!["/a%2Fb//c/".to_owned()], vec!["/a%2Fb//c/".to_owned()])
    );
}

#[test]
fn copies_count_on_when_an_upstream_changes() {
    let (app, copies) = (Backend::named("app"), Backend::named("copies"));
    let with = |weight: u64| {
        let upstreams = json!([
            {"name": "app", "servers": [{"url": app.url(), "weight": weight}]},
            {"name": "copies", "servers": [{"url": copies.url(), "weight": weight}]}
        ]);
        config(upstreams, json!([{"name": "all", "upstream": "app", "mirror": {"upstream": "copies"}}]))
    };
    let gateway = TestGateway::start(Counting::default(), GatewaySettings::default(), &with(1));
    let compared = |count: u64| {
        let begun = monotonic();
        while gateway.gateway.mirrors()[0].same_status < count {
            assert!(begun.elapsed() < PATIENCE, "a copy is answered");
        }
    };
    assert_eq!(ask(&gateway, 0, &row(PLAIN, "/", "all", "")), 200);
    compared(1);
    gateway.apply(&with(2));
    assert_eq!(ask(&gateway, 0, &row(PLAIN, "/", "all", "")), 200);
    compared(2);
}
