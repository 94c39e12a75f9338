//! What health checks and failed connections make of backends, on real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support;
use crate::support::{
    Running, backend, black_hole, connect, name_of, named, report, start, unchecked, until,
};
use serde_json::{Value, json};

/// A backend that says `rio` and keeps every connection, until it is told to stop, which closes its listener and none of
/// its connections.
struct Stoppable {
    address: SocketAddr,
    stop: SyncSender<()>,
    serving: JoinHandle<Vec<TcpStream>>,
}

impl Stoppable {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
        let serving = std::thread::spawn(move || {
            listener.set_nonblocking(true).unwrap();
            let mut held = Vec::new();
            while stopped.recv_timeout(Duration::from_millis(2)).is_err() {
                if let Ok((mut stream, _)) = listener.accept()
                    && stream.write_all(b"rio").is_ok()
                {
                    held.push(stream);
                }
            }
            drop(listener);
            held
        });
        Self { address, stop, serving }
    }

    /// Its connections, the oldest first.
    fn stop(self) -> Vec<TcpStream> {
        self.stop.send(()).unwrap();
        self.serving.join().unwrap()
    }

    fn document(&self, kind: &str) -> Value {
        let check =
            json!({"kind": kind, "interval_seconds": 0.1, "timeout_seconds": 5, "fall": 2, "rise": 1});
        json!({"name": "rio", "address": self.address.to_string(), "check": check})
    }
}

#[test]
fn fault_40_checks_take_a_backend_down_and_close_its_connections_if_asked_to() {
    let rio = Stoppable::start();
    let backends = [rio.document("tcp"), unchecked("lima", named("lima"))];
    let running = start(json!({"on_unhealthy": "close"}), &backends, &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 3), "rio");
    let held = rio.stop();
    assert!(client.read(&mut [0]).is_err(), "it is reset: what it was sent is not whole");
    assert!(!report(&running, "rio").is_up);
    until("it is counted", || report(&running, "rio").closed_unhealthy == 1);
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    drop(held);
}

#[test]
fn fault_40_connections_of_a_backend_that_is_down_live_on_unless_they_are_to_be_closed() {
    let rio = Stoppable::start();
    let backends = [rio.document("tcp"), unchecked("lima", named("lima"))];
    let running = start(json!({"on_unhealthy": "keep"}), &backends, &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 3), "rio");
    let own = client.local_addr().unwrap();
    let mut held = rio.stop();
    until("it is down", || !report(&running, "rio").is_up);
    assert_eq!(name_of(&mut connect(running.address), 4), "lima", "new ones go elsewhere");
    // Of its connections most are checks, which have ended. That of the client still passes what is said.
    client.write_all(b"still here").unwrap();
    let heard = held.iter_mut().filter_map(|stream| {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let mut said = [0; 10];
        stream.read_exact(&mut said).ok().map(|()| said)
    });
    assert_eq!(heard.collect::<Vec<_>>(), [*b"still here"], "from {own}");
    let rio = report(&running, "rio");
    assert_eq!((rio.open, rio.closed_unhealthy), (1, 0));
}

#[test]
fn fault_40_a_backend_that_goes_down_while_it_is_connected_to_has_that_connection_closed_too() {
    let (hole, held, listener) = black_hole();
    let mut rio = unchecked("rio", hole);
    let closing = json!({"on_unhealthy": "close", "connect_seconds": 30});
    let running = start(closing, std::slice::from_ref(&rio), &[]);
    let mut client = connect(running.address);
    until("it is being connected to", || report(&running, "rio").open == 1);
    rio["check"] =
        json!({"kind": "tcp", "interval_seconds": 0.1, "timeout_seconds": 0.1, "fall": 1, "rise": 100});
    running.edge.apply(&support::config(&[rio], &[]));
    until("it is down", || !report(&running, "rio").is_up);
    // There is room in its queue now: the kernel's next try reaches it.
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
    until("it is counted", || report(&running, "rio").closed_unhealthy == 1);
    assert_eq!(running.listener.stats().placed.load(Relaxed), 1, "it had been reached");
    drop(held);
}

#[test]
fn fault_40_a_backend_that_is_down_when_its_checks_are_turned_off_is_used_again() {
    let rio = Stoppable::start();
    let address = rio.address;
    let (checked, unchecked) = (rio.document("tcp"), rio.document("off"));
    let running = start(json!({}), std::slice::from_ref(&checked), &[]);
    drop(rio.stop());
    until("it is down", || !report(&running, "rio").is_up);
    running.edge.apply(&support::config(&[unchecked, support::unchecked("lima", named("lima"))], &[]));
    assert!(report(&running, "rio").is_up);
    // It is back, and nobody looks any more.
    let back = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut stream in back.incoming().flatten() {
            drop(stream.write_all(b"rio"));
        }
    });
    assert_eq!(name_of(&mut connect(running.address), 3), "rio", "of two that are idle the first");
}

#[test]
fn a_backend_that_joins_and_is_asked_for_a_page_gets_nothing_before_it_has_that() {
    let is_ready = Arc::new(AtomicBool::new(false));
    let joining = backend({
        let is_ready = Arc::clone(&is_ready);
        move |mut stream| {
            let mut said = [0; 512];
            let count = stream.read(&mut said).unwrap_or(0);
            let answer = if !said[..count].starts_with(b"GET ") {
                "new"
            } else if is_ready.load(Relaxed) {
                "HTTP/1.1 204 No Content\r\n\r\n"
            } else {
                "HTTP/1.1 503 Not Yet\r\n\r\n"
            };
            drop(stream.write_all(answer.as_bytes()));
            drop(stream.read(&mut said));
        }
    });
    let old = unchecked("old", named("old"));
    let check = json!({"kind": "http", "interval_seconds": 0.1, "rise": 1});
    let new = json!({"name": "new", "address": joining.to_string(), "check": check});
    let running = start(json!({"affinity": "off"}), std::slice::from_ref(&old), &[]);
    running.edge.apply(&support::config(&[old, new], &[]));
    let visits = || -> Vec<String> {
        let visit = |_| {
            let mut client = connect(running.address);
            client.write_all(b"hi.").unwrap();
            (name_of(&mut client, 3), client)
        };
        // All of them stay, so that one of two gets every other one.
        let held: Vec<(String, TcpStream)> = (0..6).map(visit).collect();
        held.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(visits(), ["old"; 6]);
    assert!(!report(&running, "new").is_up);
    is_ready.store(true, Relaxed);
    until("its check has passed", || report(&running, "new").is_up);
    let names = visits();
    assert!(names.iter().any(|name| name == "new"), "{names:?}");
}

/// Connections that stay until there are `count`, and the backends that they are at, each once.
fn spread(running: &Running, count: usize) -> Vec<String> {
    let mut held = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for _ in 0..count {
        let mut client = connect(running.address);
        names.push(name_of(&mut client, 1));
        held.push(client);
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn fault_40_while_one_is_healthy_the_others_get_nothing_and_when_none_is_all_do() {
    // None of them speaks HTTP, and all serve their clients.
    let addresses = ["a", "b", "c", "d"].map(|name| (name, named(name)));
    let config = |fail: usize| {
        let document = |(index, (name, address)): (usize, &(&str, SocketAddr))| {
            let kind = if index < fail { "http" } else { "tcp" };
            let check = json!({"kind": kind, "interval_seconds": 0.1, "fall": 1, "rise": 1});
            json!({"name": name, "address": address.to_string(), "check": check})
        };
        addresses.iter().enumerate().map(document).collect::<Vec<_>>()
    };
    let running = start(json!({"affinity": "off"}), &config(2), &[]);
    let down = || running.edge.backends().iter().filter(|report| !report.is_up).count();
    until("two are down", || down() == 2);
    assert_eq!(spread(&running, 8), ["c", "d"]);
    running.edge.apply(&support::config(&config(3), &[]));
    until("three are down", || down() == 3);
    assert_eq!(spread(&running, 8), ["d"]);
    running.edge.apply(&support::config(&config(4), &[]));
    until("all are down", || down() == 4);
    assert_eq!(spread(&running, 8), ["a", "b", "c", "d"], "the fault may be on this side");
    running.edge.apply(&support::config(&config(1), &[]));
    until("one is down", || down() == 1);
    assert_eq!(spread(&running, 8), ["b", "c", "d"]);
}

#[test]
fn fault_40_a_failed_connect_takes_a_backend_out_at_once_and_one_that_is_made_brings_it_back() {
    let gone = || SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let addresses = ["a", "b"].map(|name| (name, gone()));
    let backends = addresses.map(|(name, address)| unchecked(name, address));
    let running = start(json!({"affinity": "off"}), &backends, &[]);
    let out = || running.edge.backends().iter().filter(|report| report.is_ejected).count();
    assert_eq!(name_of(&mut connect(running.address), 1), "");
    assert_eq!(out(), 2, "one connection has tried both");
    // All are out: then all are tried, and who is there again is back.
    support::backend_on(&addresses[1].1.to_string(), |mut stream| drop(stream.write_all(b"b")));
    assert_eq!(name_of(&mut connect(running.address), 1), "b");
    assert_eq!((out(), report(&running, "b").is_ejected), (1, false));
    let failures = report(&running, "a").failures;
    assert_eq!(name_of(&mut connect(running.address), 1), "b");
    assert_eq!(report(&running, "a").failures, failures, "a healthy one comes first");
}

#[test]
fn fault_40_a_check_that_passes_brings_a_backend_back_without_a_clients_help() {
    let address = SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let check = json!({"interval_seconds": 0.1, "fall": 100});
    let checked = json!({"name": "rio", "address": address.to_string(), "check": check});
    let running = start(json!({}), &[checked], &[]);
    assert_eq!(name_of(&mut connect(running.address), 3), "");
    let rio = report(&running, "rio");
    assert!(rio.is_ejected && rio.is_up, "its checks have not spoken yet: {rio:?}");
    support::backend_on(&address.to_string(), |mut stream| drop(stream.write_all(b"rio")));
    until("it is back", || !report(&running, "rio").is_ejected);
    assert_eq!(name_of(&mut connect(running.address), 3), "rio");
}

#[test]
fn fault_40_a_backend_that_flaps_comes_and_goes_only_by_as_many_checks_in_a_row_as_are_asked_for() {
    // Every other check fails.
    let checks = Arc::new(AtomicU64::new(0));
    let flapping = backend({
        let checks = checks.clone();
        move |mut stream| {
            if stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {
                let status = ["204 No Content", "503 Down"][(checks.fetch_add(1, Relaxed) % 2) as usize];
                drop(stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()));
            }
        }
    });
    let document = |fall: u32| {
        let check = json!({"kind": "http", "interval_seconds": 0.1, "fall": fall, "rise": 1});
        json!({"name": "flaps", "address": flapping.to_string(), "check": check})
    };
    let running = start(json!({}), &[document(2)], &[]);
    until("it was checked often", || {
        assert!(report(&running, "flaps").is_up, "one failure in a row is not two");
        checks.load(Relaxed) >= 12
    });
    running.edge.apply(&support::config(&[document(1)], &[]));
    until("it goes", || !report(&running, "flaps").is_up);
    until("it comes", || report(&running, "flaps").is_up);
}

#[test]
fn checks_ask_what_they_are_told_to() {
    let http = |status: &'static str| {
        backend(move |mut stream| {
            let mut request = [0; 512];
            let count = stream.read(&mut request).unwrap_or(0);
            let is_right = request[..count].starts_with(b"GET /healthz HTTP/1.1\r\n");
            let status = if is_right { status } else { "400 Bad Request" };
            drop(stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()));
        })
    };
    let check = |kind: &str| json!({"kind": kind, "interval_seconds": 0.1, "fall": 1, "rise": 1});
    let mut of_http = check("http");
    of_http["path"] = json!("/healthz");
    let document = |name: &str, address: SocketAddr, check: &Value| json!({"name": name, "address": address.to_string(), "check": check});
    let backends = [
        document("good", http("204 No Content"), &of_http),
        document("bad", http("503 Service Unavailable"), &of_http),
        document("no-tls", named("hello"), &check("tls")),
        document("there", named("x"), &check("tcp")),
    ];
    let running = start(json!({}), &backends, &[]);
    let up = |running: &Running| -> Vec<bool> {
        running.edge.backends().iter().map(|report| report.is_up).collect()
    };
    until("the checks have spoken", || up(&running) == [true, false, false, true]);
}

#[test]
fn checks_begin_with_the_header_that_connections_begin_with() {
    for (word, header) in [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", &b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..])]
    {
        let (right, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let demands = backend({
            let (right, wrong) = (right.clone(), wrong.clone());
            move |mut stream| {
                let mut first = vec![0; header.len()];
                if stream.read_exact(&mut first).is_err() || first != header {
                    wrong.fetch_add(1, Relaxed);
                    return;
                }
                right.fetch_add(1, Relaxed);
                let mut request = [0; 512];
                let answer = match stream.read(&mut request) {
                    Ok(count) if request[..count].starts_with(b"GET ") => {
                        &b"HTTP/1.1 204 No Content\r\n\r\n"[..]
                    }
                    // As the begin of a ServerHello.
                    Ok(_) if request[0] == 22 => &[22, 3, 3, 0, 1, 2],
                    _ => &[],
                };
                drop(stream.write_all(answer));
            }
        });
        let document = |kind: &&str| {
            let check = json!({"kind": kind, "interval_seconds": 0.1, "fall": 1, "rise": 1});
            json!({"name": kind, "address": demands.to_string(), "check": check})
        };
        let running = start(json!({"proxy_protocol_to": word}), &[], &[]);
        let backends: Vec<Value> = ["tcp", "http", "tls"].iter().map(document).collect();
        running.edge.apply(&support::config(&backends, &[]));
        until("all were checked often", || right.load(Relaxed) >= 15);
        assert_eq!(wrong.load(Relaxed), 0, "{word}");
        let reports = running.edge.backends();
        assert!(reports.iter().all(|report| report.is_up), "{word}: {reports:?}");
    }
}
