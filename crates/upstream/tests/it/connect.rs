//! How a backend is reached, on real sockets.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tidegate_upstream::backend::{Host, Target};
use tidegate_upstream::connect::Resolver;

const PATIENCE: Duration = Duration::from_secs(60);

fn at(address: SocketAddr) -> Target {
    Target { host: Host::Address(address.ip()), port: address.port() }
}

fn named(name: &str, port: u16) -> Target {
    Target { host: Host::Name(name.into()), port }
}

#[tokio::test]
async fn fault_38_a_peer_that_is_gone_without_a_word_is_noticed_within_a_minute() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let resolver = Resolver::new(PATIENCE);
    let stream = resolver.connect(&at(listener.local_addr().unwrap()), PATIENCE).await.unwrap();
    let socket = SockRef::from(&stream);
    assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
    // With the user timeout, unanswered probes end a connection when that has passed since the last answer.
    let noticed = socket.tcp_keepalive_time().unwrap() + socket.tcp_user_timeout().unwrap().unwrap();
    assert!(noticed <= Duration::from_secs(60), "{noticed:?}");
}

#[tokio::test]
async fn a_name_is_reached_at_whichever_of_its_addresses_answers() {
    let resolver = Resolver::new(PATIENCE);
    let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = v4.local_addr().unwrap().port();
    let stream = resolver.connect(&named("localhost", port), PATIENCE).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().port(), port);
    // Where the machine has an address of version 6.
    if let Ok(v6) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        let stream = resolver.connect(&at(v6.local_addr().unwrap()), PATIENCE).await.unwrap();
        assert!(stream.peer_addr().unwrap().is_ipv6());
    }
}

#[tokio::test]
async fn fault_39_what_does_not_answer_costs_no_more_than_the_deadline() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue has no end");
    }
    let resolver = Resolver::new(PATIENCE);
    let error = resolver.connect(&at(address), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // A port that is taken, and where nobody listens.
    let nobody = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    nobody.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let at_nobody = at(nobody.local_addr().unwrap().as_socket().unwrap());
    let error = resolver.connect(&at_nobody, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    // A name that can have no address (RFC 6761).
    resolver.connect(&named("nowhere.invalid", 80), PATIENCE).await.unwrap_err();
}

#[tokio::test]
async fn connections_begin_at_each_source_in_turn_and_at_the_next_one_where_there_is_no_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(listener.local_addr().unwrap());
    let resolver = Resolver::new(PATIENCE);
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    // The second one is for documentation, and no machine's (RFC 5737).
    let sources = addresses(&["127.0.0.2", "192.0.2.1", "127.0.0.3", "::1"]);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let stream = resolver.connect_from(&sources, &target, PATIENCE).await.unwrap();
        seen.push(listener.accept().unwrap().1.ip().to_string());
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
    assert_eq!(seen[..4], seen[4..]);
    assert_eq!(seen[..4], ["127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2"]);
    let nowhere = resolver.connect_from(&addresses(&["192.0.2.1"]), &target, PATIENCE).await.unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::AddrNotAvailable);
    let other = resolver.connect_from(&addresses(&["::1"]), &target, PATIENCE).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unsupported);
}
