//! One process in the place of another on shared ports, twenty times under load: no connection is refused or broken off.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::support::edge::{PATIENCE, answers, echo, free, metric, until, visit};
use crate::support::{Tidegate, binary, keep_asking};
use tidegate_net::clock::monotonic;
use tidegate_testkit::Server;

const TAKEOVERS: usize = 20;

const ENVIRONMENT: [(&str, &str); 4] = [
    ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
    ("TIDEGATE_EDGE_API_LISTEN", "off"),
    ("TIDEGATE_INTAKE_LISTEN", "off"),
    ("TIDEGATE_RUNTIME_SHARE_PORTS", "true"),
];

/// A server that agrees to every upgrade, says back what comes, and has a last word when its client has said its own.
fn upgrading() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                read_head(&mut stream);
                stream
                    .write_all(b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
                    .unwrap();
                let mut reader = stream.try_clone().unwrap();
                drop(std::io::copy(&mut reader, &mut stream));
                drop(stream.write_all(b"bye"));
                drop(stream.shutdown(Shutdown::Write));
            });
        }
    });
    address
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A connection that has gone on in another protocol.
fn upgraded(gateway: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let offer = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(offer.as_bytes()).unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(answers(&mut stream), "what is said comes back");
    stream
}

/// Listeners of an edge and of a gateway, both before a backend.
struct Site {
    edge: SocketAddr,
    gateway: SocketAddr,
    file: String,
}

impl Site {
    fn new(echo: SocketAddr, app: SocketAddr) -> Self {
        let (edge, gateway) = (free(), free());
        let file = format!(
            "edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\n\
             edge.backend = [{{ name = \"echo\", address = \"{echo}\", check = {{ kind = \"off\" }} }}]\n\
             gateway.listener = [{{ listen = \"{gateway}\" }}]\n\
             upstream = [{{ name = \"app\", servers = [\"http://{app}\"] }}]\n\
             route = [{{ name = \"app\", upstream = \"app\" }}]\n"
        );
        Self { edge, gateway, file }
    }

    fn start(&self) -> Tidegate {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("site.toml"), &self.file).unwrap();
        Tidegate::start_in(data, &["--config", "site.toml"], &ENVIRONMENT)
    }

    /// How many connections a process has taken.
    fn placed(&self, process: &Tidegate) -> u64 {
        metric(process, &format!("tidegate_edge_placed_total{{listener=\"{}\",by=\"score\"}}", self.edge))
    }
}

/// Asks for the address of `default.internal` by one datagram: its last byte, as often as it needs to be asked.
fn address_of(names: SocketAddr) -> u8 {
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07default\x08internal\0\0\x01\0\x01";
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let began = monotonic();
    let mut reply = [0; 512];
    while began.elapsed() < PATIENCE {
        socket.send_to(question, names).unwrap();
        if let Ok(length) = socket.recv(&mut reply) {
            assert_eq!(&reply[..2], b"\x12\x34", "it is the question's reply");
            return reply[length - 1];
        }
    }
    panic!("nobody answers");
}

/// The first process has a connection, and so is there for as long as this is.
#[test]
fn fault_23_names_are_answered_by_the_next_process_alone_while_the_first_still_has_connections() {
    let (echo, edge, names) = (echo(), free(), free());
    let start = |last_byte: u8| {
        let data = tempfile::tempdir().unwrap();
        let file = format!(
            "edge.dns_listen = \"{names}\"\n\
             edge.listener = [{{ listen = \"{edge}\", app = \"echo\" }}]\n\
             edge.backend = [{{ name = \"echo\", app = \"echo\", address = \"{echo}\", check = {{ kind = \"off\" }} }}, \
             {{ name = \"one\", address = \"10.0.0.{last_byte}:80\", check = {{ kind = \"off\" }} }}]\n"
        );
        fs::write(data.path().join("site.toml"), file).unwrap();
        Tidegate::start_in(data, &["--config", "site.toml"], &ENVIRONMENT)
    };
    let first = start(1);
    let (mut held, is_served) = visit("127.0.0.1", edge);
    assert!(is_served && address_of(names) == 1);
    let _next = start(2);
    // The kernel spreads askers over both by their ports.
    until("both answer", || address_of(names) == 2);
    until("both answer", || address_of(names) == 1);
    first.signal("TERM");
    until("the first one leaves questions to the next", || (0..40).all(|_| address_of(names) == 2));
    assert!(answers(&mut held), "it is there, and serves its connection");
    drop(held);
    let ended = first.wait();
    assert!(ended.status.success(), "{}", ended.output);
}

/// Ends the clients however the test ends.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn fault_23_twenty_processes_take_over_from_one_another_and_no_connection_fails() {
    let app = free();
    let _stub = Server::start(binary().args(["stub", &app.to_string()]), "listening on ");
    let site = Site::new(echo(), app);
    let (stop, visits, answered) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let before = std::thread::scope(|scope| {
        // However the test ends, it ends before the clients are waited for.
        let mut serving = site.start();
        let visit = || {
            while !stop.load(Relaxed) {
                let mut stream = TcpStream::connect(site.edge).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                assert!(answers(&mut stream), "a connection is not served");
                visits.fetch_add(1, Relaxed);
            }
        };
        let ask = || keep_asking(site.gateway, "GET / HTTP/1.1\r\nhost: t\r\n\r\n", &stop, &answered);
        let visitors = [(); 4].map(|()| scope.spawn(visit));
        let askers = [(); 4].map(|()| scope.spawn(ask));
        let _stop = StopAtTheEnd(&stop);
        let mut before = Vec::new();
        for _ in 0..TAKEOVERS {
            let next = site.start();
            until("the next one serves beside it", || site.placed(&next) > 0);
            serving.signal("TERM");
            before.push(std::mem::replace(&mut serving, next));
            let (visited, replies) = (visits.load(Relaxed), answered.load(Relaxed));
            until("the load goes on", || {
                visits.load(Relaxed) > visited + 50 && answered.load(Relaxed) > replies + 50
            });
        }
        // One whose connection is refused ends.
        assert!(visitors.iter().chain(&askers).all(|client| !client.is_finished()), "a connection failed");
        stop.store(true, Relaxed);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        // These leave when the server closes.
        serving.signal("TERM");
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        before.push(serving);
        before
    });
    for process in before {
        let ended = process.wait();
        assert!(ended.status.success(), "{}", ended.output);
    }
    // Without the setting nobody joins by mistake.
    let _serving = site.start();
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("site.toml"), &site.file).unwrap();
    let mut alone = binary();
    alone.args(["serve", "--config", "site.toml", "--intake-listen", "off"]).current_dir(data.path());
    for listener in ["HTTP", "GRPC", "RESP", "INTAKE", "EDGE_API"] {
        alone.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
    }
    let refused = alone.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    let expected = format!("cannot listen on {}: the address is in use by another process", site.gateway);
    assert!(!refused.status.success() && said.contains(&expected), "{said}");
}

/// A stream of HTTP that its server goes on with as it is told: the client's end, and the server's.
fn streaming(gateway: SocketAddr, app: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(gateway).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let (mut server, _) = app.accept().unwrap();
    read_head(&mut server);
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut piece = [0; 5];
    client.read_exact(&mut piece).unwrap();
    assert_eq!(&piece, b"first");
    (client, server)
}

/// WebSockets and streams outlive the time in which a process takes connections, by as much as they need and may have.
#[test]
fn fault_23_a_thousand_websockets_and_a_stream_live_on_while_the_next_process_serves() {
    let mut site = Site::new(echo(), upgrading());
    let app = TcpListener::bind("127.0.0.1:0").unwrap();
    let streams = format!("{{ name = \"stream\", servers = [\"http://{}\"] }}", app.local_addr().unwrap());
    let route = "{ name = \"stream\", path = \"/stream\", upstream = \"stream\" }";
    site.file = site.file.replace("upstream = [", &format!("upstream = [{streams}, "));
    site.file = site.file.replace("route = [", &format!("route = [{route}, "));
    site.file.push_str("limits.drain_deadline = \"10m\"\n");
    let first = site.start();
    let mut open: Vec<TcpStream> = (0..1_000).map(|_| upgraded(site.gateway)).collect();
    let (mut client, mut server) = streaming(site.gateway, &app);
    let mut idle = TcpStream::connect(site.gateway).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = site.start();
    until("the next one serves beside it", || {
        assert!(visit("127.0.0.1", site.edge).1, "a connection is not served");
        site.placed(&next) > 0
    });
    first.signal("TERM");
    // Whoever has not asked for anything is told to go elsewhere; that is the last thing that happens before the end.
    idle.read_to_end(&mut Vec::new()).unwrap();
    assert!(open.iter_mut().all(answers), "a WebSocket was closed before its time");
    assert!(answers(&mut upgraded(site.gateway)), "the next one serves new ones");
    server.write_all(b"again").unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "again");
    assert!(open.iter_mut().all(answers), "a WebSocket was closed before its time");
    for mut stream in open {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "bye");
    }
    let ended = first.wait();
    assert!(ended.status.success(), "{}", ended.output);
}

/// Shortly before the deadline the server of a WebSocket has the last word, and nobody sees a reset.
#[test]
fn fault_23_websockets_hear_their_servers_last_word_before_the_deadline() {
    let mut site = Site::new(echo(), upgrading());
    site.file.push_str("limits.drain_deadline = \"20s\"\n");
    let first = site.start();
    let mut open: Vec<TcpStream> = (0..20).map(|_| upgraded(site.gateway)).collect();
    assert!(open.iter_mut().all(answers), "nothing has become of those that are open");
    first.signal("TERM");
    for stream in &mut open {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "bye");
    }
    let ended = first.wait();
    assert!(ended.status.success(), "{}", ended.output);
}
