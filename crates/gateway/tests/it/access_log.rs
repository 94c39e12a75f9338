//! The access log and traces, both made of the one record of a request.
//!
//! Over 400 lines because lines, destinations and traces are looked at behind the same gateway.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    Backend, PATIENCE, Reaction, TestGateway, answer_in_http2, config, head, reply, server, status, text,
};
use serde_json::{Value, json};
use socket2::SockRef;
use tidegate_gateway::access_log::{AccessLog, AccessLogSettings, Destination, LineFormat, QUEUE_BYTES};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::{
    Denial, LimitedRequest, Limits, LimitsAnswer, PolicyVerdict, Ruling, Unlimited,
};
use tidegate_gateway::service::{GatewaySettings, TraceGuard};
use tidegate_net::clock::monotonic;

fn to_file(path: &Path, format: LineFormat, rules: &[&str]) -> AccessLogSettings {
    let destination = Destination::File { path: path.to_owned(), max_bytes: 1 << 30, keep: 1 };
    AccessLogSettings { destination, format, rules: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
}

/// A gateway with a log, and the log.
fn logging(
    limits: impl for<'r> Limits<LimitedRequest<'r>>,
    config: &GatewayConfig,
    settings: AccessLogSettings,
) -> (TestGateway, Arc<AccessLog>) {
    let log = AccessLog::open(settings).unwrap();
    let kept = Some(Arc::clone(&log));
    let add = |gateway: tidegate_gateway::service::Gateway| gateway.with_access_log(kept);
    (TestGateway::start_with(limits, GatewaySettings::default(), config, add), log)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// The lines of the file, when there are so many.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(path).unwrap_or_default();
    until("the lines are written", || read().lines().count() >= count);
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

fn in_front_of(servers: &[String], route: Value) -> GatewayConfig {
    let mut all = json!({"name": "all", "upstream": "app"});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    config(json!([{"name": "app", "servers": servers, "balance": "round_robin"}]), json!([all]))
}

/// Allows what it is asked about but for `/denied`, and says why.
#[derive(Debug)]
struct Few;

impl<'r> Limits<LimitedRequest<'r>> for Few {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let allowed = request.path != "/denied";
            let quota = Denial::Quota { policies: vec![policies[0].to_string()] };
            let verdict =
                PolicyVerdict { policy: Arc::clone(&policies[0]), allowed, is_shadow: false, remaining: 7 };
            let verdicts = if request.wants_verdicts { vec![verdict] } else { Vec::new() };
            Ruling { denial: (!allowed).then_some(quota), verdicts, ..Ruling::default() }
        })
    }
}

/// A browser says to every route of a host by which URL its page was asked for, and that URL may have a token.
#[test]
fn fault_52_a_token_of_one_route_reaches_no_server_and_no_log_by_the_referer_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let app = Backend::start(|_| reply(200, &[], ""));
    let page = json!({"name": "page", "path": "/page/*", "upstream": "app", "auth": "key", "key_in": ["query:token"]});
    let routes = json!([page, {"name": "rest", "upstream": "app"}]);
    let config = config(json!([{"name": "app", "servers": [app.url()]}]), routes);
    let (gateway, _log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &[]));
    let own = "http://shop.example:80/page/?token=secret&page=1";
    for (referer, told) in [
        (own, "http://shop.example:80/page/?page=1"),
        ("/page/?token=secret", "/page/"),
        ("http://other.example/?token=its-own", "http://other.example/?token=its-own"),
    ] {
        let request = format!(
            "GET /a HTTP/1.1\r\nhost: shop.example\r\nreferer: {referer}\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(status(&gateway.send(&request)), 200);
        assert_eq!(app.got().last().unwrap().field("referer"), Some(told));
    }
    let log = lines(&path, 3).concat();
    assert!(log.contains("page=1") && !log.contains("secret"), "{log}");
}

#[test]
fn each_request_has_a_line_that_says_what_was_done_for_it_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let good = Backend::start(|got| match got.line.as_str() {
        "GET /cut HTTP/1.1" => Reaction::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec()),
        _ => reply(201, &[], "hello"),
    });
    let dead = std::net::SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let servers = [format!("http://{dead}"), good.url()];
    let config =
        in_front_of(&servers, json!({"path": "/*", "host": "shop.example", "policies": ["per-client"]}));
    let (gateway, _log) = logging(Few, &config, to_file(&path, LineFormat::Json, &[]));
    let ask = |text: &str| gateway.send(&format!("{text}\r\nconnection: close\r\n\r\n"));
    ask("GET /a?b=c HTTP/1.1\r\nhost: Shop.Example:80\r\nuser-agent: x\"y\r\nreferer: /z");
    ask("GET /denied HTTP/1.1\r\nhost: shop.example");
    ask("GET / HTTP/1.1\r\nhost: other.example");
    ask("GET /%2e%2e/%zz HTTP/1.1\r\nhost: shop.example");
    let mut cut = gateway.connect();
    cut.write_all(b"GET /cut HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n").unwrap();
    drop(cut.read_to_end(&mut Vec::new()));
    let read: Vec<Value> = lines(&path, 5).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, denied, nowhere, ambiguous, cut] = &read[..] else { panic!("{read:?}") };

    assert!(first["time"].as_str().unwrap().ends_with('Z'), "{first}");
    for (key, value) in [
        ("client", json!("127.0.0.1")),
        ("method", json!("GET")),
        ("host", json!("Shop.Example:80")),
        ("target", json!("/a?b=c")),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(201)),
        ("bytes", json!(5)),
        ("route", json!("all")),
        ("upstream", json!("app")),
        ("server", json!(good.address.to_string())),
        ("attempts", json!(2)),
        ("end", json!("complete")),
        ("referer", json!("/z")),
        ("user_agent", json!("x\"y")),
    ] {
        assert_eq!(first[key], value, "{first}");
    }
    assert_eq!(first["request_id"].as_str(), good.got()[0].field("x-request-id"));
    let trace = first["trace"].as_str().unwrap();
    let steps: Vec<&str> = trace.split(", ").map(|step| step.split(";us=").next().unwrap()).collect();
    let expected = [
        "normalise".to_owned(),
        "route;name=\"all\"".to_owned(),
        "limit".to_owned(),
        "verdict;policy=\"per-client\";says=allowed;remaining=7".to_owned(),
        "breaker;of=upstream;state=closed".to_owned(),
        "pick".to_owned(),
        format!("attempt;upstream=\"app\";server=\"{dead}\";end=unreachable"),
        "pick".to_owned(),
        format!("attempt;upstream=\"app\";server=\"{}\";end=201;connection=new", good.address),
        "respond;status=201".to_owned(),
    ];
    assert_eq!(steps, expected);

    assert_eq!((&denied["status"], &denied["because"]), (&json!(429), &json!("quota")));
    assert!(denied["trace"].as_str().unwrap().contains("says=denied"), "{denied}");
    assert!(denied.get("server").is_none() && denied["attempts"] == 0, "{denied}");
    assert_eq!((&nowhere["status"], &nowhere["because"]), (&json!(404), &json!("no_route")));
    assert_eq!((&ambiguous["status"], &ambiguous["because"]), (&json!(400), &json!("ambiguous_path")));
    assert!(ambiguous.get("route").is_none(), "{ambiguous}");
    assert_eq!((&cut["status"], &cut["bytes"], &cut["end"]), (&json!(200), &json!(3), &json!("broken_off")));
}

/// Over HTTP/2 a server may say behind the head that nothing follows, as it never does here.
#[test]
fn a_reply_that_can_have_no_body_is_complete_with_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for (index, expected) in [(0x89, 204), (0x8b, 304)] {
        // HEADERS without END_STREAM, with a status of the static table (RFC 7541, appendix A).
        let address = server(move |reader| answer_in_http2(reader, [0, 0, 1, 1, 4, 0, 0, 0, 0], &[index]));
        let app = json!({"name": "app", "servers": [format!("http://{address}")], "protocol": "http2"});
        let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
        let (gateway, _log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &[]));
        assert_eq!(status(&gateway.get("/")), expected);
        let line: Value = serde_json::from_str(&lines(&path, 1)[0]).unwrap();
        assert_eq!((&line["status"], &line["end"]), (&json!(expected), &json!("complete")), "{line}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_line_names_the_trace_that_its_server_is_told_of_and_that_its_caller_knows() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let good = Backend::named("hello");
    let config = in_front_of(&[good.url()], json!({"host": "shop.example", "policies": ["per-client"]}));
    let (gateway, _log) = logging(Few, &config, to_file(&path, LineFormat::Json, &[]));
    let known = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-00\r\n");
    for (path, host, field) in [
        ("/", "shop.example", ""),
        ("/", "shop.example", &*known),
        ("/denied", "shop.example", &*known),
        ("/", "other.example", ""),
    ] {
        gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{field}connection: close\r\n\r\n"));
    }
    let read: Vec<Value> = lines(&path, 4).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<Option<&str>> = read.iter().map(|line| line["trace_id"].as_str()).collect();
    let told: Vec<String> =
        good.got().iter().map(|got| got.field("traceparent").unwrap().to_owned()).collect();
    let [begun, followed] = &told[..] else { panic!("{told:?}") };
    assert!(begun.contains(ids[0].unwrap()) && followed.contains(TRACE), "{told:?} {ids:?}");
    assert_eq!(&ids[1..], [Some(TRACE), Some(TRACE), None], "the last one stands in no trace");
}

/// curl has no `Host` field over HTTP/2, only `:authority`.
#[test]
fn the_log_has_the_host_of_a_request_over_http_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let good = Backend::named("hello");
    let (gateway, _log) =
        logging(Unlimited, &in_front_of(&[good.url()], json!({})), to_file(&path, LineFormat::Json, &[]));
    let asked = Command::new("curl")
        .args(["--silent", "--show-error", "--http2-prior-knowledge", "--connect-to"])
        .arg(format!("shop.example:80:{}", gateway.address))
        .arg("http://shop.example/a")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "hello", "{asked:?}");
    let line: Value = serde_json::from_str(&lines(&path, 1)[0]).unwrap();
    assert_eq!((&line["host"], &line["protocol"]), (&json!("shop.example"), &json!("HTTP/2.0")), "{line}");
}

#[test]
fn a_client_that_leaves_has_its_line_before_and_in_the_middle_of_its_reply() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let endless = server(|mut reader| {
        let line = head(&mut reader);
        if line.starts_with("GET /silent") {
            drop(reader.read(&mut [0]));
            return;
        }
        let stream = reader.get_mut();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        while stream.write_all(b"3\r\nabc\r\n").is_ok() {}
    });
    let config = in_front_of(&[format!("http://{endless}")], json!({}));
    let (gateway, _log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &[]));
    for (request, status, attempt) in
        [("GET /silent", 499, "end=client_left"), ("GET /endless", 200, "end=200;connection=new")]
    {
        fs::write(&path, "").unwrap();
        let mut client = gateway.connect();
        client.write_all(format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
        if status == 200 {
            client.read_exact(&mut [0; 200]).unwrap();
        } else {
            let in_flight = || gateway.gateway.upstreams()[0].servers[0].1.in_flight;
            until("the server has it", || in_flight() == 1);
        }
        leave(client);
        let line: Value = serde_json::from_str(&lines(&path, 1)[0]).unwrap();
        assert_eq!((&line["status"], &line["end"]), (&json!(status), &json!("client_left")), "{line}");
        assert!(line["trace"].as_str().unwrap().contains(attempt), "{line}");
        assert_eq!(line["bytes"].as_u64().unwrap() > 0, status == 200, "{line}");
    }
}

/// Ends a connection by a reset, which cannot be taken for half a close.
fn leave(client: TcpStream) {
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn the_combined_format_is_apaches_with_the_trace_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let backend = Backend::named("hello");
    let config = in_front_of(&[backend.url()], json!({}));
    let (gateway, _log) = logging(Unlimited, &config, to_file(&path, LineFormat::Combined, &[]));
    gateway.send("GET /a HTTP/1.1\r\nhost: a\r\nuser-agent: x\"y\r\nconnection: close\r\n\r\n");
    let line = &lines(&path, 1)[0];
    let (client, rest) = line.split_once(" - - [").unwrap();
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!((client, time.len(), &time[20..]), ("127.0.0.1", 26, " +0000"), "{line}");
    let expected = "\"GET /a HTTP/1.1\" 200 5 \"-\" \"x\\x22y\" \"normalise;us=";
    assert!(rest.starts_with(expected) && rest.ends_with('"'), "{line}");
}

#[test]
fn rules_choose_which_requests_have_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let backend = Backend::start(|got| reply(if got.line.contains("/bad") { 500 } else { 200 }, &[], ""));
    let config = in_front_of(&[backend.url()], json!({}));
    let rules = ["*/404=0", "*/5xx=100", "all/*=20"];
    let (gateway, log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &rules));
    for _ in 0..200 {
        assert_eq!(status(&gateway.get("/")), 200);
    }
    for _ in 0..10 {
        assert_eq!(status(&gateway.send("POST /bad HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")), 500);
    }
    until("each is counted", || log.stats().written + log.stats().left_out == 210);
    // A fifth of 200, far from each end: 40 with a deviation of 5.7.
    let written = log.stats().written;
    assert!((10 + 10..10 + 80).contains(&written), "{written}");
    let bad =
        fs::read_to_string(&path).unwrap().lines().filter(|line| line.contains("\"status\":500")).count();
    assert_eq!(bad, 10);
}

#[test]
fn a_file_is_rotated_by_size_and_so_many_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let backend = Backend::named("x");
    let config = in_front_of(&[backend.url()], json!({}));
    let destination = Destination::File { path: path.clone(), max_bytes: 4_000, keep: 2 };
    let settings = AccessLogSettings { destination, format: LineFormat::Json, rules: Vec::new() };
    let (gateway, log) = logging(Unlimited, &config, settings);
    for number in 0..60 {
        gateway.get(&format!("/{number}"));
    }
    until("each is written", || log.stats().written == 60);
    let numbered = |number: usize| PathBuf::from(format!("{}.{number}", path.display()));
    assert!(!numbered(3).exists());
    let mut newest = 60;
    for file in [path.clone(), numbered(1), numbered(2)] {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.len() <= 4_000 && text.ends_with('\n'), "{} bytes in {file:?}", text.len());
        for line in text.lines().rev() {
            newest -= 1;
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["target"], format!("/{newest}"), "in order, none lost");
        }
    }
    assert!(newest > 0, "what is older is gone");
}

#[test]
fn a_file_that_was_renamed_is_left_when_the_log_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let backend = Backend::named("x");
    let config = in_front_of(&[backend.url()], json!({}));
    let (gateway, log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &[]));
    gateway.get("/first");
    assert!(lines(&path, 1)[0].contains("/first"));
    let renamed = folder.path().join("renamed");
    fs::rename(&path, &renamed).unwrap();
    gateway.get("/second");
    assert!(lines(&renamed, 2)[1].contains("/second"));
    log.reopen();
    until("there is a file", || path.exists());
    gateway.get("/third");
    assert!(lines(&path, 1)[0].contains("/third"));
    lines(&renamed, 2);
    gateway.get("/last");
    assert!(log.close(PATIENCE));
    lines(&path, 2);
}

#[test]
fn fault_77_a_log_that_takes_no_more_costs_lines_and_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Its reader reads nothing: each write beyond the pipe's room waits for ever.
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let backend = Backend::named("x");
    let config = in_front_of(&[backend.url()], json!({}));
    let (gateway, log) = logging(Unlimited, &config, to_file(&path, LineFormat::Json, &[]));
    let target = "t".repeat(2_000);
    let requests = 2 * QUEUE_BYTES / 2_000;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = std::io::BufReader::new(gateway.connect());
                for _ in 0..requests / 8 {
                    let stream = client.get_mut();
                    stream
                        .write_all(format!("GET /{target} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes())
                        .unwrap();
                    let head = head(&mut client);
                    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                    client.read_exact(&mut [0]).unwrap();
                }
            });
        }
    });
    let stats = log.stats();
    assert!(stats.dropped > 0 && stats.queued_bytes <= QUEUE_BYTES, "{stats:?}");
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while reader.read(&mut buffer).is_ok_and(|length| length > 0) {}
    });
    until("what was queued is written", || log.stats().queued_bytes == 0);
    until("each is counted", || {
        let stats = log.stats();
        stats.written + stats.dropped == (requests / 8 * 8) as u64
    });
    drop(reading);
}

#[test]
fn a_trace_is_told_to_who_may_ask_and_nothing_is_said_to_others() {
    let backend = Backend::start(|got| reply(200, &[], &got.line));
    let config = in_front_of(&[backend.url()], json!({"policies": ["per-client"]}));
    let guard = TraceGuard::new(|authorization| authorization == b"Bearer secret");
    let gateway = TestGateway::start_with(Few, GatewaySettings::default(), &config, |gateway| {
        gateway.with_traces(guard)
    });
    let ask = |fields: &str| {
        gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n"))
    };
    for token in ["authorization: Bearer secret\r\n", "proxy-authorization: Bearer secret\r\n"] {
        let got = ask(&format!("tidegate-trace: 1\r\n{token}"));
        let told: Vec<&str> = got
            .fields
            .iter()
            .filter(|(name, _)| name == "tidegate-trace")
            .map(|(_, value)| &**value)
            .collect();
        let is_there = |start: &str| told.iter().any(|line| line.starts_with(start));
        for step in ["normalise;us=", "route;name=\"all\";us=", "limit;us=", "respond;status=200;us="] {
            assert!(is_there(step), "{step}: {told:?}");
        }
        assert!(is_there("verdict;policy=\"per-client\";says=allowed;remaining=7"), "{told:?}");
        let attempt = format!("attempt;upstream=\"app\";server=\"{}\";end=200;connection=", backend.address);
        assert!(is_there(&attempt), "{told:?}");
    }
    for fields in [
        "",
        "tidegate-trace: 1\r\n",
        "tidegate-trace: 1\r\nauthorization: Bearer wrong\r\n",
        "tidegate-trace: 0\r\nauthorization: Bearer secret\r\n",
        "authorization: Bearer secret\r\n",
    ] {
        let got = ask(fields);
        assert!(got.field("tidegate-trace").is_none() && text(&got) == "GET / HTTP/1.1", "{fields}: {got:?}");
    }
    let got = backend.got();
    assert!(got.iter().all(|got| got.field("tidegate-trace").is_none()));
    let tokens: Vec<Option<&str>> = got.iter().map(|got| got.field("authorization")).collect();
    let (wrong, own) = (Some("Bearer wrong"), Some("Bearer secret"));
    assert_eq!(tokens, [None, None, None, None, wrong, None, own], "a token that was used goes no further");
}
