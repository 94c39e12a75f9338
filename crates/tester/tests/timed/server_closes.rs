//! The load engine against servers that end connections between two requests, on real sockets. Each server does it at a
//! moment that its client's bytes decide, so that nothing here depends on time.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use tidegate_judge::measurement::{Bench as _, ErrorClass, Loop, Measurement, ServerCloses, StepPlan};
use tidegate_tester::load::{Engine, Exchange, Options, Workload};

/// A server whose n-th connection, from 0, is handled by `serve`; it ends with the test.
fn server(serve: impl Fn(usize, TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            serve(number, socket.unwrap());
        }
    });
    address
}

/// So many requests on one connection at a time, each sent when its predecessor has ended.
fn run(target: SocketAddr, http2: bool, requests: u64) -> Measurement {
    let workload = Arc::new(Workload::get("server", "/").unwrap());
    let exchange = if http2 { Exchange::Http2 { workload, grpc: false } } else { Exchange::Http(workload) };
    let plan = StepPlan {
        connections: 1,
        discipline: Loop::Closed { think_us: 0 },
        warmup_ms: 0,
        measure_ms: 60_000,
        max_requests: requests,
    };
    Engine::new(Options { threads: 1, ..Options::new(target, exchange) }).run(&plan).unwrap()
}

/// One request of HTTP/1.1 without a body; whether one came.
fn request(socket: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn reply(socket: &mut TcpStream) {
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
}

/// How long a server keeps a request that it will not answer.
const KEPT: Duration = Duration::from_millis(50);

/// The connection is closed when its second request is there: that one is no error, it is sent again, and what it lost by
/// that is in its latency.
#[test]
fn a_kept_connection_that_the_server_closes_costs_no_error() {
    let target = server(|number, mut socket| {
        assert!(request(&mut socket));
        reply(&mut socket);
        while request(&mut socket) {
            if number == 0 {
                socket.set_read_timeout(Some(KEPT)).unwrap();
                assert!(!request(&mut socket), "one at a time");
                return;
            }
            reply(&mut socket);
        }
    });
    let measured = run(target, false, 4);
    assert_eq!((measured.good, measured.sent, measured.errors.len()), (4, 4, 0), "{:?}", measured.errors);
    assert_eq!(measured.closes, ServerCloses { goaway: 0, idle: 1, repeated: 1 });
    assert_eq!(measured.connect.len(), 2);
    assert!(measured.response.max() >= 49_000, "{} us from the planned start", measured.response.max());
}

/// A new connection that ends without a reply is no idle one: its server cannot be spared the error.
#[test]
fn a_server_that_closes_a_new_connection_without_a_reply_is_an_error() {
    let target = server(|_, mut socket| assert!(request(&mut socket)));
    let measured = run(target, false, 3);
    assert_eq!((measured.good, measured.errors[&ErrorClass::Reset]), (0, 3), "{:?}", measured.errors);
    assert_eq!(measured.closes, ServerCloses::default());
}

/// A reply that has begun is torn, whatever the connection had carried before.
#[test]
fn a_reply_that_is_torn_on_a_kept_connection_is_an_error() {
    let target = server(|number, mut socket| {
        assert!(request(&mut socket));
        reply(&mut socket);
        while request(&mut socket) {
            if number == 0 {
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap();
                return;
            }
            reply(&mut socket);
        }
    });
    let measured = run(target, false, 3);
    assert_eq!((measured.good, measured.errors[&ErrorClass::Reset]), (2, 1), "{:?}", measured.errors);
    assert_eq!(measured.closes.repeated, 0);
}

/// A frame of HTTP/2: its type, flags, stream and payload (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// The end of the headers and of the stream; of settings: an acknowledgement.
const END: u8 = 5;
const ACK: u8 = 1;

/// The server's side of a new connection.
fn begin(socket: &mut TcpStream) {
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
}

/// The stream of the next request; none when the client has left.
fn stream(socket: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        socket.read_exact(&mut vec![0; length as usize]).ok()?;
        match head[3] {
            SETTINGS if head[4] & ACK == 0 => socket.write_all(&frame(SETTINGS, ACK, 0, &[])).ok()?,
            HEADERS => return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]])),
            _ => {}
        }
    }
}

/// `:status: 200` (RFC 7541, appendix A, 8), and nothing more.
fn answer(socket: &mut TcpStream, stream: u32) {
    socket.write_all(&frame(HEADERS, END, stream, &[0x88])).unwrap();
}

/// No request after that of stream `last` was taken, and there is no error. The client closes.
fn goodbye(socket: &mut TcpStream, last: u32, and: &[u8]) {
    let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    socket.write_all(&[frame(GOAWAY, 0, 0, &payload).as_slice(), and].concat()).unwrap();
    while socket.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
}

#[test]
fn a_request_that_a_goaway_left_out_is_sent_again() {
    let target = server(|number, mut socket| {
        begin(&mut socket);
        let first = stream(&mut socket).unwrap();
        answer(&mut socket, first);
        while let Some(next) = stream(&mut socket) {
            if number == 0 {
                return goodbye(&mut socket, first, &[]);
            }
            answer(&mut socket, next);
        }
    });
    let measured = run(target, true, 4);
    assert_eq!((measured.good, measured.sent, measured.errors.len()), (4, 4, 0), "{:?}", measured.errors);
    assert_eq!(measured.closes, ServerCloses { goaway: 1, idle: 0, repeated: 1 });
}

/// A reply that comes with a GOAWAY counts; nothing is sent again for it.
#[test]
fn a_goaway_beside_a_reply_is_counted_and_repeats_nothing() {
    let target = server(|_, mut socket| {
        begin(&mut socket);
        let taken = stream(&mut socket).unwrap();
        goodbye(&mut socket, taken, &frame(HEADERS, END, taken, &[0x88]));
    });
    let measured = run(target, true, 3);
    assert_eq!((measured.good, measured.errors.len()), (3, 0), "{:?}", measured.errors);
    assert_eq!(measured.closes, ServerCloses { goaway: 3, idle: 0, repeated: 0 });
}

/// Each connection says goodbye to its first request: that is given up after two repeats.
#[test]
fn a_server_that_only_says_goaway_is_an_error_and_no_endless_loop() {
    let target = server(|_, mut socket| {
        begin(&mut socket);
        stream(&mut socket).unwrap();
        goodbye(&mut socket, 0, &[]);
    });
    let measured = run(target, true, 1);
    assert_eq!((measured.good, measured.errors[&ErrorClass::Reset]), (0, 1), "{:?}", measured.errors);
    assert_eq!(measured.closes, ServerCloses { goaway: 3, idle: 0, repeated: 2 });
}
