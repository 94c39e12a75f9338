//! Fault 31: clients that are slow in the head, in the body or in reading are cut at their
//! deadline, while everybody else is served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Options, TestServer, connect, eventually, exchange, read_reply, read_to_end, request};
use tidegate_net::clock::monotonic;
use tidegate_net::http::{BodyPace, HttpConfig, MinimumRate};

const SHORT: Duration = Duration::from_millis(200);
/// What slow clients get where others must not be slow, on any machine.
const SLOW: Duration = Duration::from_secs(5);

fn impatient() -> HttpConfig {
    let rate = MinimumRate { grace: SHORT, bytes_per_second: 1 << 20 };
    HttpConfig {
        head_timeout: SHORT,
        body: BodyPace { deadline: SHORT * 4, rate },
        write: rate,
        linger: SHORT,
        ..HttpConfig::default()
    }
}

fn server() -> TestServer {
    TestServer::start(Options { http: impatient(), ..Options::default() })
}

fn send_all(server: &TestServer, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = || {
        let mut stream = connect(server.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    (0..count).map(|_| open()).collect()
}

#[test]
fn fault_31_slow_heads_and_bodies_are_cut_while_others_are_served() {
    const EACH: usize = 300;
    let rate = MinimumRate { grace: SLOW, ..impatient().write };
    let http = HttpConfig { head_timeout: SLOW, body: BodyPace { deadline: SLOW * 4, rate }, ..impatient() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let heads = send_all(&server, EACH, b"GET / HTTP/1.1\r\nx-slow: ");
    let bodies = send_all(&server, EACH, b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\n123");

    let mut quick = server.connect();
    let mut times = Vec::new();
    for _ in 0..=100 {
        let before = monotonic();
        // In one piece: a machine that stands still between two would make this a slow head.
        quick.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        assert!(read_reply(&mut quick).unwrap().starts_with("HTTP/1.1 200"));
        times.push(before.elapsed());
    }
    assert_eq!(server.stats.totals().cut_header, 0, "they were served beside the slow ones");
    times.sort();
    // A machine that stands still may make one or two late.
    assert!(times[98] < Duration::from_secs(1), "a normal request took {:?}", times[98]);
    assert!(times[100] < SLOW, "a normal request waited for a slow client: {:?}", times[100]);
    eventually("slow heads are cut", || server.stats.totals().cut_header == EACH as u64);

    for mut stream in heads {
        assert_eq!(read_to_end(&mut stream), "", "a slow head is cut without a reply");
    }
    for mut stream in bodies {
        let reply = read_to_end(&mut stream);
        assert!(reply.starts_with("HTTP/1.1 408"), "{reply}");
    }
    eventually("all slow connections are freed", || server.drain.connections() == 1);
}

#[test]
fn fault_31_silent_connections_are_cut_at_the_deadline_of_their_first_head() {
    const COUNT: usize = 50;
    let http = HttpConfig { head_timeout: SLOW, ..HttpConfig::default() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let mut used = server.connect();
    used.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert!(read_reply(&mut used).unwrap().starts_with("HTTP/1.1 200"));
    let before = monotonic();
    let silent = send_all(&server, COUNT, b"");
    eventually("they are cut", || server.stats.totals().cut_header == COUNT as u64);
    assert!(before.elapsed() < HttpConfig::default().idle_timeout, "long before they would be idle");
    for mut stream in silent {
        assert_eq!(read_to_end(&mut stream), "");
    }
    assert!(request(&mut used, "/").unwrap().starts_with("HTTP/1.1 200"), "an idle connection stays");
}

#[test]
fn fault_31_a_first_head_that_begins_late_gets_no_more_time() {
    let http = HttpConfig { head_timeout: SLOW, ..HttpConfig::default() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let mut late = server.connect();
    let opened = monotonic();
    eventually("most of its time has passed", || opened.elapsed() > SLOW * 3 / 4);
    late.write_all(b"GET / HT").unwrap();
    assert_eq!(read_to_end(&mut late), "");
    // A machine that stands still makes it later; a head counted from its first byte would be 8.75 s.
    assert_eq!(server.stats.totals().cut_header, 1);
    assert!(opened.elapsed() < SLOW * 7 / 4, "cut after {:?}", opened.elapsed());
}

#[test]
fn fault_31_a_body_that_stalls_half_way_is_too_slow_in_total() {
    let server = server();
    let mut stream = server.connect();
    stream.write_all(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 60000\r\n\r\n").unwrap();
    for _ in 0..30_000 {
        // On a slow machine it is cut before it has sent its half; the reply can be read all the same.
        if stream.write_all(b"x").is_err() {
            break;
        }
    }
    assert!(read_reply(&mut stream).unwrap().starts_with("HTTP/1.1 408"));
}

#[test]
fn fault_31_a_client_that_does_not_read_is_cut() {
    const COUNT: usize = 8;
    let server = server();
    let streams = send_all(&server, COUNT, b"GET /large HTTP/1.1\r\nhost: t\r\n\r\n");
    eventually("slow readers are cut", || server.stats.totals().cut_write == COUNT as u64);
    eventually("their connections are freed", || server.drain.connections() == 0);
    let other = exchange(server.address, b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    drop(streams);
}

#[test]
fn a_client_that_reads_gets_a_large_reply_whole() {
    // The rate counts after the grace: a client that the machine lets wait at first is not slow.
    let http = HttpConfig { write: MinimumRate { grace: SLOW, ..impatient().write }, ..impatient() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let reply = exchange(server.address, b"GET /large HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    assert!(reply.len() > 16 << 20);
    assert_eq!(server.stats.totals().cut_write, 0);
}

#[test]
fn idle_connections_end_quietly_and_busy_ones_do_not() {
    let http = HttpConfig { idle_timeout: Duration::from_secs(3), ..HttpConfig::default() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let mut waiting = server.connect();
    write!(waiting, "GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    let mut used = server.connect();
    assert!(request(&mut used, "/").unwrap().starts_with("HTTP/1.1 200"));
    let mut never_used = server.connect();

    assert_eq!(read_to_end(&mut never_used), "");
    assert_eq!(read_to_end(&mut used), "");
    eventually("both are counted", || server.stats.totals().cut_idle == 2);
    eventually("only the request that is being answered stays", || server.drain.connections() == 1);

    server.release.add_permits(1);
    assert!(read_reply(&mut waiting).unwrap().starts_with("HTTP/1.1 200"));
    let mut rest = [0; 1];
    assert_eq!(waiting.read(&mut rest).unwrap(), 0, "it becomes idle after its reply");
}
