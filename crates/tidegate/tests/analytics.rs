//! Requests are counted by route, API key, server and status, and one question answers what a report needs.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::edge::until;
use support::{Tidegate, agent, binary};
use tidegate_testkit::free_port;

fn start(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

fn get(service: &Tidegate, path: &str) -> (u16, String, String) {
    let mut reply = agent().get(service.url(path)).call().unwrap();
    let kind = reply.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    (reply.status().as_u16(), kind.unwrap_or_default(), reply.body_mut().read_to_string().unwrap())
}

fn rows(service: &Tidegate, question: &str) -> Vec<Value> {
    let (status, _, body) = get(service, &format!("/v1/analytics?{question}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["rows"].as_array().unwrap().clone()
}

#[test]
fn requests_are_counted_by_whose_they_are_where_they_went_and_what_became_of_them() {
    let (up, down) = (support::heads::listening().0, free_port());
    let service = start(&format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\ngateway.analytics = true\n\
         upstream = [{{ name = \"up\", servers = [\"{up}\"] }}, {{ name = \"down\", servers = [\"127.0.0.1:{down}\"] }}]\n\
         [[policy]]\nname = \"three\"\nlimit = 3\nwindow_seconds = 3600\nkey = [\"api_key\"]\n\
         [[route]]\nname = \"app\"\nupstream = \"up\"\nauth = \"key\"\npolicies = [\"three\"]\n\
         [[route]]\nname = \"gone\"\npath = \"/gone\"\nupstream = \"down\"\n"
    ));
    let issued = agent().post(service.url("/v1/keys")).send_json(json!({"consumer": "acme"}));
    let issued: Value = issued.unwrap().body_mut().read_json().unwrap();
    let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
    let ask = |path: &str, key: &str| {
        let request = agent().get(format!("http://{}{path}", service.gateway[0])).header("x-api-key", key);
        let mut reply = request.call().unwrap();
        reply.body_mut().read_to_string().unwrap();
        reply.status().as_u16()
    };
    let answers: Vec<u16> = (0..5).map(|_| ask("/", key)).collect();
    assert_eq!(answers, [200, 200, 200, 429, 429]);
    assert_eq!((ask("/", "nobody's"), ask("/gone", ""), ask("/gone", "")), (401, 502, 502));
    // A request is counted when its reply has ended, which its client may know a moment earlier.
    until("all are counted", || rows(&service, "")[0]["requests"] == 8);
    let all = &rows(&service, "from=2020-01-01")[0];
    for (name, count) in
        [("succeeded", 3), ("rate_limited", 2), ("client_errors", 1), ("failed", 2), ("requests", 8)]
    {
        assert_eq!(all[name], count, "{name}: {all}");
    }
    let [mean, p50, p99] = ["mean_ms", "p50_ms", "p99_ms"].map(|name| all[name].as_f64().unwrap());
    assert!(mean > 0.0 && p50 > 0.0 && p50 <= p99, "{all}");
    let by_route = rows(&service, "by=route,status&from=2020-01-01");
    let brief = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (text("route"), text("status"), row["requests"].as_u64().unwrap())
    };
    let expected = [("app", "200", 3), ("app", "401", 1), ("app", "429", 2), ("gone", "502", 2)];
    let expected = expected.map(|(route, status, count)| (route.to_owned(), status.to_owned(), count));
    assert_eq!(by_route.iter().map(brief).collect::<Vec<_>>(), expected);
    let days = rows(&service, "step=day");
    assert!(days.iter().all(|day| day["begin"].as_str().unwrap().ends_with("T00:00:00Z")), "{days:?}");
    let of_key = rows(&service, &format!("key={id}&by=upstream,server"));
    assert_eq!(of_key.len(), 2, "those that were sent, and those that were denied: {of_key:?}");
    assert_eq!((&of_key[1]["server"], &of_key[1]["requests"]), (&json!(up.to_string()), &json!(3)));
    let (status, kind, csv) = get(&service, "/v1/analytics?by=route&route=gone&format=csv");
    assert_eq!((status, kind.as_str()), (200, "text/csv; charset=utf-8"));
    assert!(csv.contains("\r\ngone,2,0,0,0,2,"), "{csv}");
    let (status, _, said) = get(&service, "/v1/analytics?by=client");
    assert!((400..500).contains(&status) && said.contains("/by"), "{status} {said}");
    assert!(get(&service, "/metrics").2.contains("tidegate_analytics_series_max 1000\n"));
}

#[test]
fn nothing_is_counted_unless_it_is_asked_for() {
    let service = start("gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n");
    let (status, _, said) = get(&service, "/v1/analytics");
    assert!(status == 404 && said.contains("gateway.analytics"), "{status} {said}");
}

#[test]
fn top_shows_the_routes_of_the_minute_under_way() {
    let service = start(
        "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\ngateway.analytics = true\n\
         route = [{ name = \"hello\", respond = { body = \"hello\" } }]\n",
    );
    let top = |by: &str| {
        let mut command = binary();
        command.args(["top", "--times", "1", "--by", by, "--server", &service.url("")]);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    until("the route is shown", || {
        agent().get(format!("http://{}/", service.gateway[0])).call().unwrap();
        let (done, said) = top("route,status");
        assert!(done, "{said}");
        said.lines().any(|line| line.starts_with("hello 200 ")) && said.starts_with("since ")
    });
    assert!(!top("client").0);
}
