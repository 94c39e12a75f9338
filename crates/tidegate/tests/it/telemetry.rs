//! What an OpenTelemetry collector gets of the built binary: spans with the right parents, metrics, and nothing that is not
//! to be recorded. The collector reads with OpenTelemetry's own messages (`telemetry/collector.py`).

pub(crate) mod collector;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};

use crate::support::{Tidegate, agent};
use collector::{Collector, PATIENCE};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled))
}

/// A server that says which `traceparent` each request brought. It closes the connection, and gives no reply, if the path says so.
fn server() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::sync_channel(10_000);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let trace = head.lines().find_map(|line| line.strip_prefix("traceparent: "));
                    drop(tell.try_send(trace.unwrap().to_owned()));
                    if head.contains("/broken") {
                        return;
                    }
                    let status = if head.contains("/missing") { "404 Not Found" } else { "200 OK" };
                    let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
                    if reader.get_mut().write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, told)
}

/// A gateway in front of these servers that says to the collector what it does, at once.
fn gateway(servers: &[SocketAddr], collector: &Collector, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let servers: Vec<_> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    let file = format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"shop\", servers = [{}] }}]\n\
         [[route]]\nname = \"item\"\npath = \"/items/{{id}}\"\nupstream = \"shop\"\n\
         [[route]]\nname = \"static\"\npath = \"/static\"\nrespond = {{ body = \"x\" }}\n",
        servers.join(", ")
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let url = collector.url();
    let own = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_TELEMETRY_ENDPOINT", &url),
        ("TIDEGATE_TELEMETRY_SPAN_DELAY", "100ms"),
    ];
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[&own, environment].concat())
}

fn url(service: &Tidegate, path: &str) -> String {
    format!("http://{}{path}", service.gateway[0])
}

/// The value of a series on the metrics page.
fn metric(service: &Tidegate, series: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{series} is not there"))
}

fn spans_with(service: &Tidegate, result: &str) -> u64 {
    metric(service, &format!("tidegate_telemetry_spans_total{{result=\"{result}\"}}"))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = monotonic();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

/// The one span of the trace with this service's name and kind.
fn one<'a>(spans: &'a [Value], service: &str, kind: &str) -> &'a Value {
    let is_it = |span: &&Value| span["resource"]["service.name"] == service && span["kind"] == kind;
    let found: Vec<&Value> = spans.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{service} {kind}: {spans:#?}");
    found[0]
}

#[test]
fn each_span_of_two_hops_has_the_one_before_as_its_parent() {
    let (collector, (server, told)) = (Collector::start(0, None), server());
    let second = gateway(&[server], &collector, &[("OTEL_SERVICE_NAME", "second")]);
    let first = gateway(&[second.gateway[0]], &collector, &[("TIDEGATE_TELEMETRY_SERVICE_NAME", "first")]);
    let asked = url(&first, "/items/7?secret=canary");
    let reply =
        agent().get(asked).header("traceparent", traceparent(true)).header("host", "shop.example:81").call();
    assert_eq!(reply.unwrap().status(), 200);
    let spans = collector.until("four spans", |lines| (lines.len() == 4).then(|| lines.to_vec()));
    assert!(spans.iter().all(|span| span["trace"] == TRACE && span["scope"] == "tidegate"), "{spans:#?}");
    let (server_1, client_1) =
        (one(&spans, "first", "SPAN_KIND_SERVER"), one(&spans, "first", "SPAN_KIND_CLIENT"));
    let (server_2, client_2) =
        (one(&spans, "second", "SPAN_KIND_SERVER"), one(&spans, "second", "SPAN_KIND_CLIENT"));
    assert_eq!(server_1["parent"], CALLER);
    assert_eq!(client_1["parent"], server_1["span"]);
    assert_eq!(server_2["parent"], client_1["span"]);
    assert_eq!(client_2["parent"], server_2["span"]);
    assert_eq!(told.recv().unwrap(), format!("00-{TRACE}-{}-01", client_2["span"].as_str().unwrap()));
    // W3C: recorded; whether the parent is of another process is known, and of servers' spans it is.
    assert_eq!((&server_1["flags"], &client_1["flags"]), (&json!(0x301), &json!(0x101)));
    let time = |span: &Value, of: &str| span[of].as_u64().unwrap();
    for (outer, inner) in [(server_1, client_1), (server_2, client_2)] {
        assert!(
            time(outer, "from") <= time(inner, "from") && time(inner, "to") <= time(outer, "to"),
            "{spans:#?}"
        );
    }
    let port = second.gateway[0].port();
    assert_eq!((&server_1["name"], &client_1["name"]), (&json!("GET /items/{id}"), &json!("GET")));
    let attributes = &server_1["attributes"];
    for (name, value) in [
        ("http.request.method", json!("GET")),
        ("http.route", json!("/items/{id}")),
        ("url.path", json!("/items/7")),
        ("url.scheme", json!("http")),
        ("server.address", json!("shop.example")),
        ("server.port", json!(81)),
        ("client.address", json!("127.0.0.1")),
        ("network.protocol.version", json!("1.1")),
        ("http.response.status_code", json!(200)),
        ("tidegate.route", json!("item")),
    ] {
        assert_eq!(attributes[name], value, "{name}: {attributes:#}");
    }
    let attributes = &client_1["attributes"];
    for (name, value) in [
        ("http.request.method", json!("GET")),
        ("url.full", json!(format!("http://127.0.0.1:{port}/items/7"))),
        ("server.address", json!("127.0.0.1")),
        ("server.port", json!(port)),
        ("http.response.status_code", json!(200)),
        ("tidegate.upstream", json!("shop")),
    ] {
        assert_eq!(attributes[name], value, "{name}: {attributes:#}");
    }
    assert!(
        spans.iter().all(|span| span["status"] == 0 && !span.to_string().contains("canary")),
        "{spans:#?}"
    );
    let instance = |span: &Value| span["resource"]["service.instance.id"].as_str().unwrap().to_owned();
    assert_ne!(instance(server_1), instance(server_2), "two processes are two instances");
}

#[test]
fn what_the_caller_does_not_record_is_not_recorded_and_of_the_rest_a_part() {
    let (collector, (server, told)) = (Collector::start(0, None), server());
    let service = gateway(&[server], &collector, &[("TIDEGATE_TELEMETRY_SAMPLE_RATIO", "0.5")]);
    // One connection, so that each request's spans are there before those of the next.
    let agent = agent();
    let ask = |field: Option<String>| {
        let mut request = agent.get(url(&service, "/items/1"));
        if let Some(field) = field {
            request = request.header("traceparent", field);
        }
        assert_eq!(request.call().unwrap().body_mut().read_to_string().unwrap(), "ok");
    };
    ask(Some(traceparent(false)));
    let not_sampled = told.recv().unwrap();
    assert!(
        not_sampled.starts_with(&format!("00-{TRACE}-")) && not_sampled.ends_with("-00"),
        "{not_sampled}"
    );
    (0..200).for_each(|_| ask(None));
    let fields: Vec<String> = told.try_iter().collect();
    let trace = |field: &String| field.split('-').nth(1).unwrap().to_owned();
    let recorded: BTreeSet<String> =
        fields.iter().filter(|field| field.ends_with("-03")).map(trace).collect();
    assert_eq!(fields.len(), 200);
    assert!((60..=140).contains(&recorded.len()), "{} of 200", recorded.len());
    ask(Some(traceparent(true)));
    let servers = |lines: &[Value]| {
        let traces = lines.iter().filter(|span| span["kind"] == "SPAN_KIND_SERVER");
        traces.map(|span| span["trace"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let traces = collector.until("the last request's span", |lines| {
        Some(servers(lines)).filter(|traces| traces.iter().any(|trace| trace == TRACE))
    });
    // Once: the request that was not sampled has none.
    assert_eq!(traces.len(), recorded.len() + 1);
    assert!(traces.iter().all(|trace| trace == TRACE || recorded.contains(trace)), "{traces:?}");
}

#[test]
fn every_attempt_has_its_span_and_its_server_is_told_that_one() {
    let (collector, (first, told), (second, told_2)) = (Collector::start(0, None), server(), server());
    let service = gateway(&[first, second], &collector, &[]);
    let reply = agent().get(url(&service, "/items/broken")).header("traceparent", traceparent(true)).call();
    assert_eq!(reply.unwrap().status(), 502);
    let reply = agent().get(url(&service, "/missing")).header("traceparent", traceparent(true)).call();
    assert_eq!(reply.unwrap().status(), 404);
    let reply = agent().get(url(&service, "/items/missing")).header("traceparent", traceparent(true)).call();
    assert_eq!(reply.unwrap().status(), 404);
    let spans = collector.until("six spans", |lines| (lines.len() == 6).then(|| lines.to_vec()));
    let of = |parent: &Value| spans.iter().filter(|span| span["parent"] == *parent).collect::<Vec<_>>();
    let requests = of(&json!(CALLER));
    let request = |path: &str| *requests.iter().find(|span| span["attributes"]["url.path"] == path).unwrap();
    let broken = request("/items/broken");
    assert_eq!(
        (&broken["status"], &broken["attributes"]["http.response.status_code"]),
        (&json!(2), &json!(502))
    );
    let attempts = of(&broken["span"]);
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    assert!(attempts.iter().all(|span| span["status"] == 2 && span["attributes"]["error.type"].is_string()));
    assert_eq!(attempts[0]["attributes"].get("http.request.resend_count"), None);
    assert_eq!(attempts[1]["attributes"]["http.request.resend_count"], 1);
    let told: BTreeSet<String> = told.try_iter().chain(told_2.try_iter()).collect();
    for attempt in attempts {
        let field = format!("00-{TRACE}-{}-01", attempt["span"].as_str().unwrap());
        assert!(told.contains(&field), "{field} is not among {told:?}");
    }
    // No route, and so no attempt. A client's mistake is no failure of the server that says so.
    let lost = request("/missing");
    assert_eq!((&lost["name"], &lost["status"], of(&lost["span"]).len()), (&json!("GET"), &json!(0), 0));
    assert_eq!(lost["attributes"]["tidegate.because"], "no_route");
    let missing = request("/items/missing");
    assert_eq!((&missing["status"], &of(&missing["span"])[0]["status"]), (&json!(0), &json!(2)));
}

/// Sends so many requests for what needs no server on one connection, and reads their replies.
fn flood(address: SocketAddr, requests: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let one = b"GET /static HTTP/1.1\r\nhost: a\r\n\r\n";
        (0..requests / 100).for_each(|_| writer.write_all(&one.repeat(100)).unwrap());
    });
    let (mut good, mut carried, mut buffer) = (0, String::new(), [0; 1 << 16]);
    while good < requests {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "the connection ended after {good} replies");
        carried.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        // Whole lines: the last one may go on in what comes next.
        let end = carried.rfind('\n').map_or(0, |end| end + 1);
        let lines = carried.drain(..end).collect::<String>();
        assert!(
            lines.lines().all(|line| !line.contains("HTTP/1.1") || line.contains("HTTP/1.1 200")),
            "{lines}"
        );
        good += lines.matches("HTTP/1.1 200").count();
    }
    writing.join().unwrap();
}

#[test]
fn a_collector_that_is_away_is_waited_for_within_bounds_and_costs_no_request() {
    const REQUESTS: usize = 9_500;
    let collector = Collector::start(0, None);
    let port = collector.port;
    let (server, _told) = server();
    let service = gateway(&[server], &collector, &[("OTEL_METRICS_EXPORTER", "none")]);
    drop(collector);
    flood(service.gateway[0], REQUESTS);
    let requests = REQUESTS as u64;
    until("no try has failed", || {
        metric(&service, "tidegate_telemetry_requests_total{result=\"failed\",signal=\"traces\"}") > 0
    });
    until("not every span is accounted for", || {
        let waiting = metric(&service, "tidegate_telemetry_spans_waiting");
        assert!(waiting <= metric(&service, "tidegate_telemetry_spans_waiting_max"));
        let dropped = spans_with(&service, "dropped");
        dropped > 0 && waiting + dropped + 512 >= requests
    });
    assert_eq!(spans_with(&service, "taken"), 0);
    let collector = Collector::start(port, None);
    until("the collector was not found again", || {
        spans_with(&service, "taken") + spans_with(&service, "dropped") == requests
    });
    let taken = spans_with(&service, "taken");
    collector.until("all that waited", |lines| (lines.len() as u64 >= taken).then_some(()));
    agent().get(url(&service, "/static")).header("traceparent", traceparent(true)).call().unwrap();
    collector.until("a span of now", |lines| lines.iter().find(|span| span["trace"] == TRACE).map(|_| ()));
    assert_eq!((spans_with(&service, "refused"), spans_with(&service, "taken")), (0, taken + 1));
    service.signal("TERM");
    let said = service.wait().output;
    let warnings =
        ["the collector cannot be reached", "the collector is back"].map(|text| said.matches(text).count());
    assert_eq!(warnings, [1, 1], "each is said once: {said}");
}

#[test]
fn a_drain_sends_what_waits_and_a_secret_is_told_to_nobody_else() {
    let collector = Collector::start(0, Some("canary-8c1f"));
    let (server, _told) = server();
    let late = [("TIDEGATE_TELEMETRY_SPAN_DELAY", "1m"), ("OTEL_METRIC_EXPORT_INTERVAL", "3600000")];
    let secret = [("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20canary-8c1f")];
    let service = gateway(&[server], &collector, &[&late[..], &secret].concat());
    let agent = agent();
    (0..3).for_each(|_| drop(agent.get(url(&service, "/items/1")).call().unwrap()));
    let settings =
        agent.get(service.url("/v1/settings")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(settings.contains("telemetry.headers") && !settings.contains("canary"), "{settings}");
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("canary"), "{}", ended.output);
    // The process has ended, so all is there.
    collector.until("six spans and the last count", |lines| {
        let spans = lines.iter().filter(|line| line["span"].is_string()).count();
        let is_count = |line: &&Value| {
            line["metric"] == "tidegate_http_requests"
                && line["attributes"]["server"] == "gateway"
                && line["value"] == 3.0
        };
        (spans == 6 && lines.iter().any(|line| is_count(&line))).then_some(())
    });

    let stranger = gateway(&[server_of_none()], &collector, &[]);
    agent.get(url(&stranger, "/static")).call().unwrap();
    until("nothing was refused", || spans_with(&stranger, "refused") == 1);
    collector.until("it was asked", |lines| {
        lines.iter().find(|line| line["unauthorized"] == "/v1/traces").map(|_| ())
    });
    assert_eq!((spans_with(&stranger, "taken"), spans_with(&stranger, "dropped")), (0, 0));
}

/// An address where nobody is asked anything.
fn server_of_none() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

#[test]
fn metrics_are_those_of_the_page_as_a_collector_and_an_intake_read_them() {
    let collector = Collector::start(0, None);
    let often = [("TIDEGATE_TELEMETRY_METRICS_INTERVAL", "100ms"), ("OTEL_TRACES_EXPORTER", "none")];
    let service = gateway(&[server_of_none()], &collector, &often);
    (0..5).for_each(|_| drop(agent().get(url(&service, "/static")).call().unwrap()));
    let of_gateway = |lines: &[Value], name: &str| {
        let is_it = |line: &&Value| {
            let attributes = &line["attributes"];
            line["metric"] == name && attributes["server"] == "gateway" && attributes["route"] == "routed"
        };
        lines.iter().rev().find(is_it).cloned()
    };
    let count = collector.until("five requests", |lines| {
        of_gateway(lines, "tidegate_http_requests").filter(|line| line["value"] == 5.0)
    });
    assert_eq!(
        (&count["kind"], &count["monotonic"], &count["temporality"]),
        (&json!("sum"), &json!(true), &json!(2))
    );
    assert_eq!(count["attributes"]["status"], "2xx");
    assert!(count["since"].as_u64() > Some(0) && count["since"].as_u64() < count["at"].as_u64(), "{count}");
    assert_eq!(count["description"], "Requests or commands that were answered");
    let times = collector.until("five times", |lines| {
        of_gateway(lines, "tidegate_http_request_duration_seconds").filter(|line| line["count"] == 5)
    });
    let counts: Vec<u64> =
        times["counts"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
    assert_eq!((times["kind"].as_str(), counts.iter().sum()), (Some("histogram"), 5), "{times}");
    assert_eq!(times["bounds"].as_array().unwrap().len() + 1, counts.len());
    let build = collector
        .until("a gauge", |lines| lines.iter().find(|line| line["metric"] == "tidegate_build_info").cloned());
    assert_eq!((&build["kind"], &build["value"]), (&json!("gauge"), &json!(1.0)));
    assert_eq!(build["resource"]["service.version"], env!("CARGO_PKG_VERSION"));
    assert!(!collector.lines().iter().any(|line| line["span"].is_string()), "spans are off");

    // Tidegate's own intake takes the same.
    let intake = Tidegate::start(&[], &[]);
    let endpoint = format!("http://{}", intake.intake.unwrap());
    let sends = [&often[..], &[("TIDEGATE_TELEMETRY_ENDPOINT", &endpoint)]].concat();
    let sender = Tidegate::start(&[], &sends);
    let taken = "tidegate_telemetry_requests_total{result=\"taken\",signal=\"metrics\"}";
    until("the intake takes nothing", || metric(&sender, taken) > 1);
    assert!(metric(&intake, "tidegate_intake_batches_total{protocol=\"otlp_http\"}") > 0);
}
