//! Fault 42: who may shake hands, how long that may take, and that each failure is counted by its reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common;
use crate::common::tls::{Client, client, connect, failed, server};
use crate::common::{Options, PATIENCE, TestServer, eventually, request};
use tidegate_net::clock::monotonic;
use tidegate_net::drain::{DrainTiming, Drained};
use tidegate_net::http::{HttpConfig, MinimumRate};
use tidegate_net::stats::HandshakeFailure;
use tidegate_net::tls::{Tls, TlsConfig};
use tidegate_testkit::certificates::{Certificates, Pair};

const SHORT: Duration = Duration::from_millis(300);

fn start(config: TlsConfig) -> TestServer {
    let tls = Some(Tls::load(config).unwrap());
    TestServer::start(Options { tls, ..Options::default() })
}

/// A server with the first pair of `certificates`.
fn plain(certificates: &Certificates) -> TlsConfig {
    server(&certificates.issue("server"), None)
}

#[test]
fn fault_42_a_client_without_or_with_the_wrong_certificate_is_refused() {
    let (ours, theirs) = (Certificates::make(), Certificates::make());
    let server = start(server(&ours.issue("server"), Some(&ours.authority())));
    let ask = |identity: Option<Pair>| {
        let identity = identity.as_ref();
        let mut stream = connect(server.address, &client(&ours, identity, &[]));
        request(&mut stream, "/").map_err(|error| error.to_string())
    };
    let reply = ask(Some(ours.issue("client"))).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");

    let refused = ask(None).unwrap_err();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    let refused = ask(Some(theirs.issue("client"))).unwrap_err();
    assert!(refused.contains("UnknownCA") || refused.contains("DecryptError"), "{refused}");
    let refused = ask(Some(ours.expired("late"))).unwrap_err();
    assert!(refused.contains("CertificateExpired"), "{refused}");

    eventually("each is counted by its reason", || {
        let totals = server.stats.totals();
        failed(&totals, HandshakeFailure::ClientCertificateMissing) == 1
            && failed(&totals, HandshakeFailure::ClientCertificateRefused) == 2
    });
    let totals = server.stats.totals();
    assert_eq!(totals.handshakes, 1);
    assert_eq!(totals.answered, 1, "no request of a refused client was served");
}

#[test]
fn fault_42_a_client_does_not_get_in_on_a_ticket_when_its_authority_is_gone() {
    let (ours, theirs) = (Certificates::make(), Certificates::make());
    let authorities = ours.issue("authorities").certificate;
    std::fs::copy(ours.authority(), &authorities).unwrap();
    let tls = Tls::load(server(&ours.issue("server"), Some(&authorities))).unwrap();
    let server = TestServer::start(Options { tls: Some(tls.clone()), ..Options::default() });
    let config = client(&ours, Some(&ours.issue("client")), &[]);
    for _ in 0..2 {
        assert!(request(&mut connect(server.address, &config), "/").is_ok());
    }
    std::fs::copy(theirs.authority(), &authorities).unwrap();
    tls.reload().unwrap();
    assert!(request(&mut connect(server.address, &config), "/").is_err());
    assert_eq!(server.stats.totals().handshakes, 2);
}

#[test]
fn sessions_are_resumed_where_no_client_certificate_is_asked_for() {
    let ours = Certificates::make();
    let server = start(plain(&ours));
    let config = client(&ours, None, &[]);
    let kind = |mut stream: Client| {
        request(&mut stream, "/").unwrap();
        stream.conn.handshake_kind()
    };
    assert_eq!(kind(connect(server.address, &config)), Some(rustls::HandshakeKind::Full));
    assert_eq!(kind(connect(server.address, &config)), Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn the_protocol_is_agreed_on_and_a_stranger_is_told() {
    let ours = Certificates::make();
    let server = start(plain(&ours));
    let mut stream = connect(server.address, &client(&ours, None, &[b"http/1.1"]));
    assert!(request(&mut stream, "/").unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));

    let mut stream = connect(server.address, &client(&ours, None, &[b"h2", b"http/1.1"]));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(head[3], 4, "the server's first frame is SETTINGS");

    let refused = request(&mut connect(server.address, &client(&ours, None, &[b"smtp"])), "/").unwrap_err();
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
    eventually("it is counted", || failed(&server.stats.totals(), HandshakeFailure::Incompatible) == 1);
}

#[test]
fn fault_42_a_plain_text_client_gets_a_clean_close() {
    let server = start(plain(&Certificates::make()));
    let mut stream = server.connect();
    stream.write_all(&[&b"GET / HTTP/1.1\r\nhost: t\r\n\r\n"[..], &[b'x'; 20_000]].concat()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a close, not a reset");
    assert!(reply.is_empty() || reply[0] == 21, "nothing but an alert: {reply:?}");
    assert_eq!(failed(&server.stats.totals(), HandshakeFailure::NotTls), 1);
}

#[test]
fn fault_42_clients_that_refuse_or_leave_are_told_apart() {
    let (ours, theirs) = (Certificates::make(), Certificates::make());
    let server = start(plain(&ours));
    assert!(request(&mut connect(server.address, &client(&theirs, None, &[])), "/").is_err());
    drop(server.connect());
    eventually("both are counted", || {
        let totals = server.stats.totals();
        failed(&totals, HandshakeFailure::Alert) == 1 && failed(&totals, HandshakeFailure::Gone) == 1
    });
    eventually("both are freed", || server.drain.connections() == 0);
}

/// What a client says first.
fn hello(certificates: &Certificates) -> Vec<u8> {
    let name = "localhost".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(client(certificates, None, &[]), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

/// A client that says these bytes, and no more.
fn stalled(server: &TestServer, said: &[u8]) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(said).unwrap();
    stream
}

#[test]
fn fault_42_a_handshake_that_takes_too_long_ends() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let ours = Certificates::make();
    let server = start(TlsConfig { handshake_timeout: TIMEOUT, ..plain(&ours) });
    let (start, hello) = (monotonic(), hello(&ours));
    let clients = [&[][..], &hello[..20], &hello].map(|said| stalled(&server, said));
    for (mut stream, is_answered) in clients.into_iter().zip([false, false, true]) {
        let mut rest = Vec::new();
        // Of bytes that the kernel has and nobody takes any more, a reset tells.
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || !is_answered, "{ended:?}");
        assert_eq!(!rest.is_empty(), is_answered);
    }
    assert!(start.elapsed() >= TIMEOUT);
    // They are hung up on first, counted then, and freed last.
    eventually("they are freed", || server.drain.connections() == 0);
    assert_eq!(failed(&server.stats.totals(), HandshakeFailure::Timeout), 3);
}

#[test]
fn fault_42_handshakes_beyond_the_bound_wait_and_no_slot_is_taken_before_the_hello_is_whole() {
    let ours = Certificates::make();
    let config = TlsConfig { max_handshakes: 2, handshake_timeout: PATIENCE * 3, ..plain(&ours) };
    let tls = Tls::load(config).unwrap();
    let server = TestServer::start(Options { tls: Some(tls.clone()), ..Options::default() });
    let (config, hello) = (client(&ours, None, &[]), hello(&ours));
    // Nothing, a byte, all but one; and what is none, of which TLS would wait for the rest.
    let none = [22, 3, 1, 0x3f, 0xff, 2];
    let beginnings = [&none[..], &[], &hello[..1], &hello[..hello.len() - 1]];
    let mut slow: Vec<_> = beginnings
        .iter()
        .flat_map(|said| (0..20).map(|_| stalled(&server, said)).collect::<Vec<_>>())
        .collect();
    assert!(request(&mut connect(server.address, &config), "/").is_ok());
    assert_eq!(tls.status().handshaking, 0);

    let stalled: Vec<_> = (0..2).map(|_| stalled(&server, &hello)).collect();
    eventually("both slots are taken", || tls.status().handshaking == 2);
    let mut waiting = connect(server.address, &config);
    waiting.sock.set_read_timeout(Some(SHORT)).unwrap();
    let error = request(&mut waiting, "/").expect_err("both slots are taken");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop(stalled);
    waiting.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(request(&mut waiting, "/").unwrap().starts_with("HTTP/1.1 200"));
    // The first of the two to leave frees the slot; the other may be counted a moment later.
    eventually("both that left are counted", || failed(&server.stats.totals(), HandshakeFailure::Gone) == 2);
    // By the byte, a hello is one nevertheless.
    let mut last = slow.pop().unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    last.write_all(&hello[hello.len() - 1..]).unwrap();
    let mut answer = [0; 6];
    last.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[5]), (22, 2), "a ServerHello");
    // Those that leave in the middle are seen to.
    drop((slow, last, waiting));
    eventually("all are freed", || server.drain.connections() == 0);
}

#[test]
fn fault_22_a_drain_over_tls_answers_what_is_asked_and_waits_for_no_silence() {
    let ours = Certificates::make();
    // Silence would be waited for beyond the drain's deadline, and be counted as cut.
    let mut server = start(TlsConfig { handshake_timeout: PATIENCE * 6, ..plain(&ours) });
    let config = client(&ours, None, &[]);
    let silent = server.connect();
    let mut idle = connect(server.address, &config);
    request(&mut idle, "/").unwrap();
    let mut busy = connect(server.address, &config);
    write!(busy, "GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    eventually("it is asked", || server.stats.totals().in_flight == 1);

    let (drain, release) = (server.drain.clone(), server.release.clone());
    let held = std::thread::spawn(move || {
        eventually("the drain sweeps", || drain.stage() >= tidegate_net::drain::Stage::Sweeping);
        release.add_permits(1);
        common::read_reply(&mut busy).unwrap()
    });
    let all = DrainTiming::with_deadline(PATIENCE);
    let timing = DrainTiming { grace: Duration::ZERO, idle_linger: SHORT, ..all };
    assert_eq!(server.drain(timing), Drained { aborted: 0 });
    let reply = held.join().unwrap();
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("connection: close"), "{reply}");
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).expect("closed with close_notify"), 0);
    drop(silent);
}

#[test]
fn fault_31_a_client_that_does_not_read_is_cut_over_tls_too() {
    let ours = Certificates::make();
    let rate = MinimumRate { grace: SHORT, bytes_per_second: 1 << 20 };
    let http = HttpConfig { write: rate, linger: SHORT, ..HttpConfig::default() };
    let tls = Some(Tls::load(plain(&ours)).unwrap());
    let server = TestServer::start(Options { tls, http, ..Options::default() });
    let mut deaf = connect(server.address, &client(&ours, None, &[]));
    write!(deaf, "GET /large HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    eventually("it is cut", || server.stats.totals().cut_write == 1);
    eventually("it is freed", || server.drain.connections() == 0);
    assert!(request(&mut connect(server.address, &client(&ours, None, &[])), "/").is_ok());
}
