//! Networks and clients at their worst, each with the answer that is promised: a server that is cut off, one that takes
//! 2 s, one that sends 1 KB/s, and clients that send or read as slowly as they can (slowhttptest).

use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::{Backend, PATIENCE, TestGateway, config, head, reply, server, status, text};
use serde_json::{Value, json};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

fn gateway(server: &str, upstream: Value) -> TestGateway {
    let mut app = json!({"name": "app", "servers": [server]});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

#[test]
fn a_server_that_is_cut_off_is_502_then_an_open_breaker_and_then_served_again() {
    let mut backend = Backend::named("first");
    let breaker = json!({"breaker": {"calls": 4, "minimum_calls": 4, "open_seconds": 1, "trials": 1}});
    let gateway = gateway(&backend.url(), breaker);
    assert_eq!(status(&gateway.get("/")), 200);
    let address = backend.address;
    backend.stop();
    let started = monotonic();
    let open = loop {
        let got = gateway.get("/");
        match status(&got) {
            502 => assert!(started.elapsed() < PATIENCE),
            503 => break got,
            other => panic!("{other}"),
        }
    };
    assert_eq!(open.field("retry-after"), Some("1"), "{open:?}");
    let _again = Backend::start_at(address, |_| reply(200, &[], "second"));
    let started = monotonic();
    while status(&gateway.get("/")) != 200 {
        assert!(started.elapsed() < PATIENCE, "it is asked again after the pause");
    }
}

#[test]
fn a_server_that_takes_two_seconds_is_waited_for_until_its_breaker_calls_that_slow() {
    const DELAY: Duration = Duration::from_secs(2);
    let late = || {
        server(|mut reader| {
            while let Ok([_, ..]) = reader.fill_buf() {
                head(&mut reader);
                let started = monotonic();
                while started.elapsed() < DELAY {
                    std::thread::park_timeout(DELAY);
                }
                reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            }
        })
    };
    let at_once = |gateway: &TestGateway, count: usize| {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..count).map(|_| scope.spawn(|| status(&gateway.get("/")))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<u16>>()
        })
    };
    let patient = gateway(&format!("http://{}", late()), json!({}));
    let started = monotonic();
    assert!(at_once(&patient, 30).iter().all(|status| *status == 200));
    assert!(started.elapsed() >= DELAY, "{:?}", started.elapsed());
    let breaker = json!({"breaker": {"slow_seconds": 1, "minimum_calls": 10, "first_open_seconds": 3600, "open_seconds": 3600}});
    let strict = gateway(&format!("http://{}", late()), breaker);
    assert!(at_once(&strict, 10).iter().all(|status| *status == 200));
    let refused = strict.get("/");
    // A second less for each in which the machine stood still.
    let seconds: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(status(&refused) == 503 && (3_500..=3_600).contains(&seconds), "{refused:?}");
}

#[test]
fn clients_that_send_their_bodies_slowly_open_no_breaker() {
    const DELAY: Duration = Duration::from_secs(4);
    let reads = server(|mut reader| {
        while let Ok([_, ..]) = reader.fill_buf() {
            if head(&mut reader).starts_with("POST ") {
                reader.read_exact(&mut [0; 10]).unwrap();
            }
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
    });
    let breaker = json!({"breaker": {"slow_seconds": 3, "minimum_calls": 10, "first_open_seconds": 3600, "open_seconds": 3600}});
    let gateway = gateway(&format!("http://{reads}"), breaker);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                client.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n01234").unwrap();
                let started = monotonic();
                while started.elapsed() < DELAY {
                    std::thread::park_timeout(DELAY);
                }
                client.write_all(b"56789").unwrap();
                let mut reply = [0; 12];
                client.read_exact(&mut reply).unwrap();
                assert_eq!(&reply, b"HTTP/1.1 200");
            });
        }
    });
    assert_eq!(status(&gateway.get("/")), 200);
}

#[test]
fn a_reply_at_a_kilobyte_a_second_passes_whole_and_holds_nobody_up() {
    const BODY: usize = 3_000;
    let slow = server(|mut reader| {
        let line = head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        if line.starts_with("GET /fast") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
            return;
        }
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n").as_bytes()).unwrap();
        for _ in 0..BODY / 100 {
            std::thread::park_timeout(Duration::from_millis(100));
            stream.write_all(&[b'x'; 100]).unwrap();
        }
    });
    let gateway = gateway(&format!("http://{slow}"), json!({}));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let got = gateway.get("/slow");
            is_over.store(true, SeqCst);
            got
        });
        let mut meanwhile = 0;
        while !is_over.load(SeqCst) {
            assert_eq!(status(&gateway.get("/fast")), 200);
            meanwhile += 1;
        }
        assert!(meanwhile > 0);
        assert_eq!(text(&reading.join().unwrap()), "x".repeat(BODY));
    });
}

/// The time of each of these requests, sorted; all are answered.
fn asked(gateway: &TestGateway, mut more: impl FnMut() -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while more() {
        let started = monotonic();
        let got = gateway.get("/");
        assert_eq!(status(&got), 200, "{}", text(&got));
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times
}

#[test]
fn fault_31_while_others_send_and_read_slowly_all_requests_are_answered() {
    let backend = Backend::start(|got| {
        let length = if got.line.contains("/large") { 1 << 20 } else { 2 };
        reply(200, &[], &"x".repeat(length))
    });
    let gateway = gateway(&backend.url(), json!({}));
    let mut left = 200;
    let before = asked(&gateway, || {
        left -= 1;
        left >= 0
    });
    let url = |path: &str| format!("http://{}{path}", gateway.address);
    let tests: [(&str, &[&str], String); 3] = [
        ("slow heads", &["-H", "-i", "1"], url("/")),
        ("slow bodies", &["-B", "-i", "1", "-s", "100000"], url("/")),
        ("slow readers", &["-X", "-n", "1", "-z", "16", "-w", "256", "-y", "512"], url("/large")),
    ];
    for (name, arguments, url) in tests {
        let mut attacker = Command::new("slowhttptest")
            .args(arguments)
            .args(["-c", "400", "-r", "400", "-l", "4", "-p", "10", "-v", "1", "-u", &url])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let during = asked(&gateway, || attacker.try_wait().unwrap().is_none());
        attacker.wait().unwrap();
        let p99 = |times: &[Duration]| times[(times.len() - 1) * 99 / 100];
        let ratio = p99(&during).as_secs_f64() / p99(&before).as_secs_f64();
        println!(
            "{name}: {} requests, p99 {:?}, {ratio:.2} x the p99 without them",
            during.len(),
            p99(&during)
        );
        assert!(!during.is_empty());
    }
}
