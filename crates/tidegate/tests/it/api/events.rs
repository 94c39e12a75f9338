//! `/v1/events`: what readers are told, how many there are, and how a stream ends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tidegate_access::tokens::{Credential, Scope};
use tidegate_admin::api::MAX_READERS;
use tidegate_algorithms::time::Wall;
use tidegate_control::{Author, Change, MAX_CHANGES};
use tidegate_limiter::policy_set::OVERRIDE;
use tidegate_net::clock::monotonic;
use tidegate_net::drain::Stage;

use crate::api::support::{Running, Setup, start};

// A reader is dropped when megabytes of changes wait for it, which a busy machine takes a minute to write.
const PATIENCE: Duration = Duration::from_secs(180);

/// A reader of events.
struct Stream {
    lines: BufReader<TcpStream>,
    status: u16,
    /// Of the last event that had one.
    id: String,
}

fn open(service: &Running, token: &str) -> Stream {
    open_on(TcpStream::connect(service.address).unwrap(), token)
}

fn open_on(stream: TcpStream, token: &str) -> Stream {
    let authorization =
        if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    ask(stream, "", &authorization)
}

/// One that says what it had before: in the address, in a header field.
fn resume(service: &Running, query: &str, field: &str) -> Stream {
    ask(TcpStream::connect(service.address).unwrap(), query, field)
}

fn ask(mut stream: TcpStream, query: &str, fields: &str) -> Stream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "host: localhost\r\nconnection: close\r\n";
    write!(stream, "GET /v1/events{query} HTTP/1.1\r\n{head}{fields}\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(lines.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(status != 200 || head.contains("content-type: text/event-stream"), "{head}");
    Stream { lines, status, id: String::new() }
}

impl Stream {
    /// The data of the next event of this name.
    fn next(&mut self, event: &str) -> Value {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the stream has ended");
            if let Some(found) = line.trim_end().strip_prefix("event: ") {
                name = found.to_owned();
            }
            if let Some(found) = line.trim_end().strip_prefix("id: ") {
                self.id = found.to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ").filter(|_| name == event) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Reads until the server ends it.
    fn ends(mut self) {
        let mut rest = Vec::new();
        let read = self.lines.read_to_end(&mut rest);
        assert!(read.is_ok_and(|_| rest.ends_with(b"0\r\n\r\n")), "{}", String::from_utf8_lossy(&rest));
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = monotonic();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

fn metric(service: &Running, series: &str) -> u64 {
    let mut reply = ureq::get(format!("http://{}/metrics", service.address)).call().unwrap();
    let page = reply.body_mut().read_to_string().unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{page}"));
    value.trim().parse().unwrap()
}

#[test]
fn a_reader_is_told_what_is_in_force_and_each_change() {
    let service = start();
    let mut stream = open(&service, "");
    assert_eq!(stream.next("configuration"), json!({"revision": 0, "all": true, "changed": [], "more": 0}));
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":5,"window_seconds":60}"#).status, 200);
    let changed = json!([{"kind": "policy", "name": "api"}]);
    let event = json!({"revision": 1, "all": false, "changed": changed, "more": 0});
    assert_eq!(stream.next("configuration"), event);
    assert_eq!(service.delete("/v1/policies/api").status, 204);
    assert_eq!(stream.next("configuration")["revision"], 2);
    // Who connects later begins with what is so.
    assert_eq!(open(&service, "").next("configuration")["revision"], 2);
}

#[test]
fn a_reader_that_comes_back_is_told_what_changed_while_it_was_away() {
    let service = start();
    let mut first = open(&service, "");
    first.next("configuration");
    let by_field = |id: &str| resume(&service, "", &format!("Last-Event-ID: {id}\r\n")).next("configuration");
    let by_address = |id: &str| resume(&service, &format!("?after={id}"), "").next("configuration");
    let event = |revision, all, changed: Value| json!({"revision": revision, "all": all, "changed": changed, "more": 0});
    assert_eq!(by_field(&first.id), event(0, false, json!([])), "nothing has changed");
    let (start, policy) = (first.id.clone(), r#"{"limit":5,"window_seconds":60}"#);
    assert_eq!(service.put("/v1/policies/api", policy).status, 200);
    first.next("configuration");
    assert_eq!(service.put("/v1/policies/web", policy).status, 200);
    assert_eq!(service.delete("/v1/policies/web").status, 204);
    let of = |name: &str| json!({"kind": "policy", "name": name});
    let (web, all) = (json!([of("web"), of("web")]), json!([of("api"), of("web"), of("web")]));
    assert_eq!(
        (by_field(&first.id), by_address(&first.id)),
        (event(3, false, web.clone()), event(3, false, web))
    );
    assert_eq!(by_address(&start), event(3, false, all.clone()));
    // A browser connects again at the address that it was given, with a field that is newer.
    let both = resume(&service, &format!("?after={start}"), &format!("Last-Event-ID: {}\r\n", first.id))
        .next("configuration");
    assert_ne!(both["changed"], all);
    // Of what is not of this process and this file nothing is known, nor of what is still to come.
    let era = start.split_once('-').unwrap().1;
    for id in ["", "3", "x-y", "3-0", &format!("4-{era}"), &format!("-1-{era}")] {
        assert_eq!(by_field(id), event(3, true, json!([])), "{id:?}");
    }
    service.reload_tokens([]);
    assert_eq!(by_field(&first.id), event(3, true, json!([])), "another file");
}

#[test]
fn a_reader_that_was_away_for_long_is_told_how_many_changes_are_not_listed() {
    let service = start();
    let mut stream = open(&service, "");
    stream.next("configuration");
    let start = stream.id.clone();
    let mut change = |count: usize, newest: u64| {
        let put = |name: usize| Change::put(OVERRIDE, format!("c{name}"), r#"{"default":{"limit":1}}"#);
        let changes: Vec<_> = (0..count).map(put).collect();
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        service.app().configuration().control().apply(&changes, &author).unwrap();
        while stream.next("configuration")["revision"] != newest {}
        resume(&service, &format!("?after={start}"), "").next("configuration")
    };
    let event = change(101, 101);
    let listed = event["changed"].as_array().unwrap().len();
    assert_eq!((listed, &event["more"], &event["all"]), (100, &json!(1), &json!(false)));
    // More than anybody remembers.
    let newest = 101 + MAX_CHANGES as u64;
    assert_eq!(
        change(MAX_CHANGES, newest),
        json!({"revision": newest, "all": true, "changed": [], "more": 0})
    );
}

#[test]
fn a_reader_is_told_when_an_upstreams_breaker_opens() {
    let dead = SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let more = "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n";
    let service = Setup { more, ..Setup::default() }.start();
    let mut stream = open(&service, "");
    let upstream =
        json!({"servers": [dead.to_string()], "breaker": {"seconds": 5, "first_open_seconds": 60}});
    assert_eq!(service.put("/v1/upstreams/app", &upstream.to_string()).status, 200);
    assert_eq!(stream.next("breaker"), json!({"of": "upstream", "name": "app", "state": "closed"}));
    assert_eq!(service.put("/v1/routes/app", r#"{"upstream":"app"}"#).status, 200);
    let (gateway, is_over) = (service.app().gateway_addresses()[0], Arc::new(AtomicBool::new(false)));
    let asking = {
        let is_over = is_over.clone();
        thread::spawn(move || ask_until(gateway, &is_over))
    };
    assert_eq!(stream.next("breaker"), json!({"of": "upstream", "name": "app", "state": "open"}));
    is_over.store(true, Relaxed);
    asking.join().unwrap();
    assert_eq!(service.delete("/v1/routes/app").status, 204);
    assert_eq!(service.delete("/v1/upstreams/app").status, 204);
    assert_eq!(stream.next("breaker"), json!({"of": "upstream", "name": "app", "state": "gone"}));
}

#[test]
fn a_reader_is_told_when_a_routes_breaker_opens() {
    let dead = SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let more = "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n";
    let service = Setup { more, ..Setup::default() }.start();
    let mut stream = open(&service, "");
    let upstream = json!({"servers": [dead.to_string()], "breaker": {"enabled": false}});
    assert_eq!(service.put("/v1/upstreams/app", &upstream.to_string()).status, 200);
    let route = json!({"upstream": "app", "breaker": {"first_open_seconds": 3600, "open_seconds": 3600}});
    assert_eq!(service.put("/v1/routes/shop", &route.to_string()).status, 200);
    assert_eq!(stream.next("breaker"), json!({"of": "route", "name": "shop", "state": "closed"}));
    let (gateway, is_over) = (service.app().gateway_addresses()[0], Arc::new(AtomicBool::new(false)));
    let asking = {
        let is_over = is_over.clone();
        thread::spawn(move || ask_until(gateway, &is_over))
    };
    assert_eq!(stream.next("breaker"), json!({"of": "route", "name": "shop", "state": "open"}));
    is_over.store(true, Relaxed);
    asking.join().unwrap();
    let state = |state: &str| {
        metric(&service, &format!("tidegate_route_breaker{{route=\"shop\",state=\"{state}\"}} "))
    };
    assert_eq!(["closed", "open", "half_open"].map(state), [0, 1, 0]);
    assert_eq!(service.delete("/v1/routes/shop").status, 204);
    assert_eq!(stream.next("breaker"), json!({"of": "route", "name": "shop", "state": "gone"}));
}

fn ask_until(gateway: SocketAddr, is_over: &AtomicBool) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    while !is_over.load(Relaxed) {
        assert!(agent.get(format!("http://{gateway}/")).call().unwrap().status().as_u16() >= 500);
    }
}

#[test]
fn readers_beyond_the_bound_are_turned_away_and_counted() {
    let service = start();
    let mut readers: Vec<Stream> = (0..MAX_READERS).map(|_| open(&service, "")).collect();
    assert!(readers.iter_mut().all(|reader| reader.status == 200));
    assert_eq!(metric(&service, "tidegate_event_readers "), MAX_READERS as u64);
    assert_eq!(open(&service, "").status, 503);
    assert_eq!(metric(&service, "tidegate_event_readers_dropped_total{reason=\"too_many\"} "), 1);
    drop(readers.pop());
    wait_for("the place of a reader that has left is free", || open(&service, "").status == 200);
}

#[test]
fn a_stream_ends_with_the_right_to_it_and_with_the_process() {
    let token = |name: &str, scope| Credential::new(name, [scope], &format!("the-secret-of-{name}"));
    let (reader, other, operator) =
        (token("reader", Scope::Read), token("other", Scope::Read), token("operator", Scope::Configure));
    let tokens = vec![reader, other.clone(), operator.clone()];
    let service = Setup { tokens, ..Setup::default() }.start();
    assert_eq!((open(&service, "").status, open(&service, "the-secret-of-operator").status), (401, 403));
    let (mut revoked, mut kept) =
        (open(&service, "the-secret-of-reader"), open(&service, "the-secret-of-other"));
    for stream in [&mut revoked, &mut kept] {
        stream.next("configuration");
    }
    service.reload_tokens([other, operator]);
    // The reload was an event as well; whose token is gone is not told.
    revoked.ends();
    kept.next("configuration");
    service.app().drain().advance(Stage::Draining);
    kept.ends();
}

#[test]
fn a_reader_that_leaves_its_events_waiting_is_dropped_and_counted() {
    let service = start();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // So that little of it waits in the kernel.
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&service.address.into()).unwrap();
    let mut slow = open_on(socket.into(), "");
    slow.next("configuration");
    let names: Vec<String> = (0..100).map(|client| format!("{client:0>500}")).collect();
    let put = |limit: u64| {
        let body = json!({"default": {"limit": limit}}).to_string();
        let changes: Vec<_> = names.iter().map(|name| Change::put(OVERRIDE, &**name, &*body)).collect();
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        service.app().configuration().control().apply(&changes, &author).unwrap();
    };
    let mut limit = 0;
    wait_for("a reader that reads nothing is dropped", || {
        // Several, since the system keeps megabytes for who reads nothing, and a look takes longer than a change.
        for _ in 0..10 {
            limit += 1;
            put(limit);
        }
        // By the events, or by the listener that writes them, whichever has waited long enough first; or by both.
        let slow = metric(&service, "tidegate_event_readers_dropped_total{reason=\"slow\"} ");
        slow + metric(&service, "tidegate_connections_cut_total{server=\"api\",deadline=\"write\"} ") > 0
    });
    wait_for("its place is free", || metric(&service, "tidegate_event_readers ") == 0);
    // What had left for it before is there, and then the stream is over in one way or another.
    let mut rest = Vec::new();
    if let Err(error) = slow.lines.read_to_end(&mut rest) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
