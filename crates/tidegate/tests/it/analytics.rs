//! Requests are counted by route, API key, server and status, and one question answers what a report needs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support;
use crate::support::edge::{metric, until};
use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};
use tidegate_control::{Batch, Control, Counted, Limits, Span, Sums};
use tidegate_net::clock::wall;
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
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
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
    is_one_request_for_the_report(&service, &days[0]["begin"].as_str().unwrap()[..10]);
    let (status, kind, csv) = get(&service, "/v1/analytics?by=route&route=gone&format=csv");
    assert_eq!((status, kind.as_str()), (200, "text/csv; charset=utf-8"));
    assert!(csv.contains("\r\ngone,2,0,0,0,2,"), "{csv}");
    let (status, _, said) = get(&service, "/v1/analytics?by=client");
    assert!((400..500).contains(&status) && said.contains("/by"), "{status} {said}");
    assert!(get(&service, "/metrics").2.contains("tidegate_analytics_series_max 1000\n"));
}

/// What the report's source promises, of these eight requests.
fn is_one_request_for_the_report(service: &Tidegate, today: &str) {
    // What is denied counts for the service that it was for.
    let by_service = rows(service, "by=upstream&from=2020-01-01");
    let brief = |row: &Value| {
        ["requests", "succeeded", "rate_limited", "failed"].map(|name| row[name].as_u64().unwrap())
    };
    let of = |name: &str| by_service.iter().find(|row| row["upstream"] == name).map(brief);
    assert_eq!(
        (of("up"), of("down"), by_service.len()),
        (Some([6, 3, 2, 0]), Some([2, 0, 0, 2]), 2),
        "{by_service:?}"
    );
    // One request has what the report's source has: all together, and by service, between two dates.
    let (_, _, report) = get(service, &format!("/v1/analytics?by=upstream&from={today}&to=2100-01-01"));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (brief(&report["total"]), report["rows"].as_array().unwrap().len()),
        ([8, 3, 2, 2], 2),
        "{report}"
    );
    assert!(report["total"]["mean_ms"].as_f64().unwrap() > 0.0, "{report}");
    let (_, _, before) = get(service, "/v1/analytics?by=upstream&from=2020-01-01&to=2020-01-02");
    let before: Value = serde_json::from_str(&before).unwrap();
    assert_eq!((&before["total"]["requests"], &before["rows"]), (&json!(0), &json!([])));
}

const HELLO: &str = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\ngateway.analytics_interval = \"1s\"\n\
                     route = [{ name = \"hello\", respond = { body = \"hello\" } }]\n";

fn greet(service: &Tidegate, times: usize) {
    for _ in 0..times {
        assert_eq!(agent().get(format!("http://{}/", service.gateway[0])).call().unwrap().status(), 200);
    }
}

/// All requests since 1970, of which there must be some.
fn counted(service: &Tidegate) -> u64 {
    rows(service, "from=1970-01-01").first().map_or(0, |row| row["requests"].as_u64().unwrap())
}

fn restarted(service: Tidegate) -> Tidegate {
    let (folder, ended) = service.wait_keeping_data();
    assert!(!ended.output.contains("are lost"), "{}", ended.output);
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

#[test]
fn a_process_that_is_told_to_end_forgets_no_request_and_one_that_is_killed_only_those_not_yet_written() {
    let service = start(HELLO);
    greet(&service, 3);
    // A request is counted when its reply has ended, which its client may know a moment earlier.
    until("all are counted", || counted(&service) == 3);
    service.signal("TERM");
    let service = restarted(service);
    assert_eq!(counted(&service), 3, "what was not written yet was written at the end");
    greet(&service, 4);
    until("they are written", || {
        counted(&service) == 7 && metric(&service, "tidegate_analytics_waiting_requests") == 0
    });
    greet(&service, 5);
    service.signal("KILL");
    let service = restarted(service);
    assert!((7..=12).contains(&counted(&service)), "{}", counted(&service));
    let before = counted(&service);
    greet(&service, 1);
    until("it is counted", || counted(&service) == before + 1);
    assert_eq!(metric(&service, "tidegate_analytics_lost_requests_total"), 0);
}

#[test]
fn nothing_is_counted_where_it_is_turned_off() {
    let service = start("gateway.listener = [{ listen = \"127.0.0.1:0\" }]\ngateway.analytics = false\n");
    let (status, _, said) = get(&service, "/v1/analytics");
    assert!(status == 404 && said.contains("gateway.analytics"), "{status} {said}");
    assert!(!get(&service, "/metrics").2.contains("tidegate_analytics_"), "no series of counts");
}

#[test]
fn top_shows_the_routes_of_the_minute_under_way() {
    let service = start(HELLO);
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

/// An hour of many combinations has more rows than an answer: those of the minute under way are the last of them.
#[test]
fn top_shows_the_minute_under_way_beside_an_hour_of_more_rows_than_an_answer_has() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), HELLO).unwrap();
    plant_an_hour(&folder.path().join("tidegate-data"));
    let listen = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &listen);
    let hour: Value = serde_json::from_str(&get(&service, "/v1/analytics?step=minute&by=route").2).unwrap();
    assert!(hour["series_left_out"].as_u64().unwrap() > 0, "the question that an hour is asked for by");
    until("the route is shown", || {
        greet(&service, 1);
        let mut command = binary();
        command.args(["top", "--times", "1", "--by", "route", "--server", &service.url("")]);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        said.lines().any(|line| line.starts_with("hello "))
    });
}

/// Stores requests of the last hour but for its last two minutes, by 300 routes in each minute.
fn plant_an_hour(data: &Path) {
    let control = Control::open(data, Limits::default()).unwrap();
    let now = wall().0 / 1_000_000_000;
    let sums = Sums { requests: 1, bytes: 1, micros: 1, classes: vec![(0, 1)] };
    for back in (2..50).rev() {
        let minute = Span::Minute.begin(now) - back * 60;
        let row = |route: u64| {
            let labels = format!("[\"r{route}\",null,null,null,200,false]");
            Counted { labels, otherwise: "[null,null,null,null,200,true]".to_owned(), sums: sums.clone() }
        };
        let batch = Batch { writer: 1, number: 50 - back, minute, rows: (0..300).map(row).collect() };
        control.add_counts(&batch, now).unwrap();
    }
}

#[test]
fn top_draws_routes_keys_denials_and_backends_on_a_terminal_again_and_again() {
    let up = support::heads::listening().0;
    let service = start(&format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"up\", servers = [\"{up}\"] }}]\n\
         route = [{{ name = \"app\", upstream = \"up\", auth = \"key\" }}]\n"
    ));
    let issued = agent().post(service.url("/v1/keys")).send_json(json!({"consumer": "acme"}));
    let issued: Value = issued.unwrap().body_mut().read_json().unwrap();
    let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
    let ask = |key: &str| {
        let request = agent().get(format!("http://{}/", service.gateway[0])).header("x-api-key", key);
        request.call().unwrap().body_mut().read_to_string().unwrap();
    };
    until("a screen has all of it", || {
        ask(key);
        ask("nobody's");
        let command = format!(
            "stty cols 90 rows 24; exec '{}' top --every 1 --times 2 --server '{}'",
            env!("CARGO_BIN_EXE_tidegate"),
            service.url("")
        );
        let mut terminal = Command::new("script");
        terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]).stdin(Stdio::null());
        let output = terminal.output().unwrap();
        let drawn = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{drawn}");
        let screens: Vec<&str> = drawn.split("\u{1b}[H\u{1b}[J").skip(1).collect();
        assert_eq!(screens.len(), 2, "{drawn}");
        let lines: Vec<&str> = screens[1].lines().collect();
        assert!(lines.len() < 24 && lines.iter().all(|line| line.chars().count() <= 90), "{drawn}");
        let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
        let [with_key, denied, backend] = [format!("{id} "), "app - 401 ".to_owned(), format!("up {up} ")];
        lines[0].starts_with("since ") && ["app ", &with_key, &denied, &backend].into_iter().all(has)
    });
}
