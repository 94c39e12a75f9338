//! What is planted in a stub is there: each behaviour seen from outside, over a plain socket.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use tidegate_net::clock::monotonic;
use tidegate_tester::{
    load::Stop,
    stub::{Admission, Beyond, Fault, FaultKind, Stall, Stub, StubOptions, Upstream},
};

fn stub(change: impl FnOnce(&mut StubOptions)) -> Stub {
    let mut options = StubOptions::new(([127, 0, 0, 1], 0).into());
    change(&mut options);
    Stub::start(options, Stop::default()).unwrap()
}

fn connect(stub: &Stub) -> TcpStream {
    let stream = TcpStream::connect(stub.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: stub\r\n\r\n";

/// Reads `count` replies, each with a body of two bytes, or what there is until the end of the file.
fn read_replies(stream: &mut TcpStream, count: usize) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    while text.matches("\r\n\r\nxx").count() < count {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.push_str(&String::from_utf8_lossy(&buffer[..length])),
        }
    }
    text
}

fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).unwrap();
    read_replies(stream, 1)
}

#[test]
fn requests_in_pieces_and_pipelined_ones_are_answered_in_order() {
    let stub = stub(|options| options.fault = Some(Fault { every: 2, kind: FaultKind::Status(500) }));
    let mut stream = connect(&stub);
    let (first, second) = b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody".split_at(39);
    stream.write_all(first).unwrap();
    stream.write_all(&[second, GET, GET].concat()).unwrap();
    let text = read_replies(&mut stream, 3);
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
    assert_eq!(statuses, ["200", "500", "200"]);
}

#[test]
fn a_request_that_is_none_closes_the_connection() {
    let stub = stub(|_| {});
    let mut stream = connect(&stub);
    stream.write_all(b"\x16\x03\x01\r\n\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
}

#[test]
fn a_slow_body_comes_in_its_pieces() {
    let stub = stub(|options| {
        (options.body_bytes, options.body_pieces) = (10, 5);
        options.body_gap = Duration::from_millis(20);
    });
    let mut stream = connect(&stub);
    let began = monotonic();
    stream.write_all(GET).unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"xxxxxxxxxx") {
        let mut buffer = [0; 256];
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0);
        text.extend_from_slice(&buffer[..length]);
    }
    assert!(began.elapsed() >= Duration::from_millis(80), "{:?}", began.elapsed());
}

#[test]
fn requests_beyond_the_bound_are_refused_and_counted() {
    let bound = Admission { status: 503, beyond: Beyond::Requests(2) };
    let stub = stub(|options| options.admission = Some(bound));
    let mut stream = connect(&stub);
    let replies: Vec<String> = (0..4).map(|_| ask(&mut stream)[9..12].to_owned()).collect();
    assert_eq!(replies, ["200", "200", "503", "503"]);
    assert_eq!((stub.stats().requests, stub.stats().refused), (4, 2));
}

#[test]
fn a_stall_holds_everybody_up() {
    let stub = stub(|options| {
        options.stall = Some(Stall { every: Duration::from_millis(200), length: Duration::from_millis(100) });
    });
    let mut stream = connect(&stub);
    let began = monotonic();
    let mut longest = Duration::ZERO;
    while longest < Duration::from_millis(90) {
        assert!(began.elapsed() < Duration::from_secs(60), "{longest:?}");
        let sent = monotonic();
        assert!(ask(&mut stream).starts_with("HTTP/1.1 200"));
        longest = longest.max(sent.elapsed());
    }
}

#[test]
fn an_upstream_is_waited_for_and_its_failure_is_a_502() {
    let behind = stub(|options| options.delay = Duration::from_millis(30));
    let address = behind.address();
    let front = stub(|options| options.upstream = Some(Upstream { address, connections: 1 }));
    let mut streams = [connect(&front), connect(&front)];
    let began = monotonic();
    for stream in &mut streams {
        stream.write_all(GET).unwrap();
    }
    for stream in &mut streams {
        assert!(read_replies(stream, 1).starts_with("HTTP/1.1 200"));
    }
    assert!(began.elapsed() >= Duration::from_millis(60), "one connection, one after the other");
    assert_eq!((behind.stats().requests, behind.stats().in_flight_max), (2, 1));
    drop(behind);
    assert!(ask(&mut streams[0]).starts_with("HTTP/1.1 502"));
}

#[test]
fn drift_and_burn_take_their_time() {
    let stub = stub(|options| {
        options.burn = Duration::from_millis(5);
        options.drift_per_second = Duration::from_millis(500);
        options.leak_bytes = 1_000;
    });
    let mut stream = connect(&stub);
    let mut took = Vec::new();
    for _ in 0..12 {
        let sent = monotonic();
        ask(&mut stream);
        took.push(sent.elapsed());
    }
    assert!(took[0] >= Duration::from_millis(5), "{took:?}");
    assert!(took[11] >= took[0] + Duration::from_millis(10), "{took:?}");
}

#[test]
fn the_account_can_be_read_and_begun_anew() {
    let stub = stub(|options| options.threads = 2);
    let mut stream = connect(&stub);
    ask(&mut stream);
    let mut get = |path: &str| {
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut buffer = [0; 4_096];
        let length = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let text = get("/__stub/stats");
    let stats: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&stats["requests"], &stats["connections"]), (&1.into(), &1.into()));
    get("/__stub/reset");
    assert_eq!((stub.stats().requests, stub.stats().connections_max), (0, 1));
}

#[test]
fn echo_sends_back_what_comes() {
    let stub = stub(|options| options.echo = true);
    let mut stream = connect(&stub);
    stream.write_all(b"anything\0at all").unwrap();
    let mut back = [0; 15];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"anything\0at all");
}
