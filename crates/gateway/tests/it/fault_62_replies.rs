//! FAULTS 62: a reply in doubt is a 502 or is cut, and never mixed with the next one; its connection is not
//! used again, and nothing unsafe is repeated.

use std::io::{Read, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};

use crate::support::{Backend, PATIENCE, Reaction, TestGateway, config, head, reply, server, status, text};
use serde_json::json;
use socket2::SockRef;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

/// A gateway in front of one server that answers `/odd` in an odd way, and everything else as it should.
fn odd(bytes: impl Fn() -> Reaction + Send + Sync + 'static) -> (Backend, TestGateway) {
    let backend = Backend::start(move |got| match got.line.contains("/odd") {
        true => bytes(),
        false => reply(200, &[], "good"),
    });
    let config = config(
        json!([{"name": "app", "servers": [backend.url()], "eject_after": 0, "breaker": {"enabled": false}}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    (backend, gateway)
}

/// Everything that a client gets which asks for `/odd` and then for `/good`.
fn two_requests(gateway: &TestGateway, method: &str) -> String {
    let mut client = gateway.connect();
    let requests = format!(
        "{method} /odd HTTP/1.1\r\nhost: a\r\n\r\nGET /good HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    );
    client.write_all(requests.as_bytes()).unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    String::from_utf8_lossy(&received).into_owned()
}

fn statuses(received: &str) -> Vec<&str> {
    received.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect()
}

#[test]
fn fault_62_a_server_that_resets_its_connection_in_mid_reply_cuts_that_reply_alone() {
    let posts = Arc::new(AtomicUsize::new(0));
    let address = {
        let posts = Arc::clone(&posts);
        server(move |mut reader| {
            loop {
                let asked = head(&mut reader);
                posts.fetch_add(usize::from(asked.starts_with("POST")), SeqCst);
                let mut stream = reader.get_ref();
                if asked.contains("/odd") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").unwrap();
                    // Closed like this, a connection ends by a reset.
                    return SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood").unwrap();
            }
        })
    };
    let app = json!({"name": "app", "servers": [format!("http://{address}")], "eject_after": 0, "breaker": {"enabled": false}});
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    for method in ["GET", "POST"] {
        for _ in 0..20 {
            let received = two_requests(&gateway, method);
            // What had come before the reset, or that there is no reply; and never the next reply in place of the rest.
            let (statuses, is_cut) = (statuses(&received), received.ends_with("abc"));
            assert!(matches!((&statuses[..], is_cut), (["200"], _) | (["502", "200"], false)), "{received}");
            assert_eq!(received.contains("good"), statuses[0] == "502", "{received}");
        }
    }
    assert_eq!(posts.load(SeqCst), 20, "what is unsafe is sent once");
    assert_eq!(text(&gateway.get("/good")), "good");
}

#[test]
fn fault_62_a_reply_whose_end_is_in_doubt_is_a_502() {
    let large = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x: 1\r\n".repeat(200));
    for bytes in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx : 1\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: evil\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
        "no reply at all\r\n\r\n",
        &large,
        &many,
    ] {
        let bytes = bytes.to_owned();
        let shown = bytes[..bytes.len().min(100)].to_owned();
        let (backend, gateway) = odd(move || Reaction::Bytes(bytes.clone().into_bytes()));
        let received = two_requests(&gateway, "GET");
        assert_eq!(statuses(&received), ["502", "200"], "{shown:?}: {received}");
        assert!(received.ends_with("good"), "{shown:?}: {received}");
        assert_eq!(backend.connections(), 2, "{shown:?}: the connection is not used again");
    }
}

#[test]
fn fault_62_what_follows_a_reply_is_not_the_next_one() {
    for (method, bytes, expected) in [
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\noneHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
            "200",
        ),
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none and more", "200"),
        ("GET", "HTTP/1.1 204 None\r\ncontent-length: 4\r\n\r\nevil", "204"),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "200"),
        ("GET", "HTTP/1.1 304 Same\r\ncontent-length: 4\r\n\r\nevil", "304"),
        ("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\nevil", "200"),
    ] {
        let (_backend, gateway) = odd(move || Reaction::Bytes(bytes.as_bytes().to_vec()));
        let received = two_requests(&gateway, method);
        assert_eq!(statuses(&received), [expected, "200"], "{bytes:?}: {received}");
        assert!(received.ends_with("good") && !received.contains("evil"), "{bytes:?}: {received}");
    }
}

#[test]
fn fault_62_a_reply_that_breaks_off_is_cut_and_not_completed() {
    for bytes in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
    ] {
        let (_backend, gateway) = odd(move || Reaction::Last(bytes.as_bytes().to_vec()));
        let received = two_requests(&gateway, "GET");
        // What is seen to be broken before its head is passed on is a 502, and its connection to the client lives on.
        if statuses(&received) != ["502", "200"] {
            // Nothing behind it: the second request is not answered on a connection that was cut.
            assert_eq!(statuses(&received), ["200"], "{bytes:?}: {received}");
            assert!(!received.ends_with("0\r\n\r\n"), "{bytes:?}: {received}");
        }
        assert_eq!(text(&gateway.get("/good")), "good");
    }
}

#[test]
fn fault_62_interim_replies_and_the_old_version_are_understood() {
    for (bytes, body) in [
        ("HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", "abc"),
        ("HTTP/1.0 200 OK\r\n\r\nto the end", "to the end"),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end", "to the end"),
    ] {
        let (_backend, gateway) = odd(move || Reaction::Last(bytes.as_bytes().to_vec()));
        let reply = gateway.get("/odd");
        assert_eq!((status(&reply), text(&reply).as_str()), (200, body), "{bytes:?}");
    }
}

#[test]
fn fault_62_a_server_that_answers_before_the_body_is_heard_and_nothing_is_repeated() {
    let asked = Arc::new(AtomicUsize::new(0));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, SeqCst);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream
                .write_all(b"HTTP/1.1 413 No\r\ncontent-length: 8\r\nconnection: close\r\n\r\ntoo much")
                .unwrap();
            // Until the gateway closes, so that nothing is reset.
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or_default();
        }
    });
    let config = config(
        json!([{"name": "app", "servers": [format!("http://{server}")]}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let mut client = gateway.connect();
    client.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\nabc").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    let received = String::from_utf8_lossy(&received);
    assert!(received.starts_with("HTTP/1.1 413 ") && received.ends_with("too much"), "{received}");
    assert_eq!(asked.load(SeqCst), 1);
}

#[test]
fn fault_62_no_request_waits_for_the_body_of_one_that_has_its_reply() {
    // It answers when it has a head, and takes nothing of the body until it is told to.
    let (closed, is_closed) = mpsc::sync_channel(8);
    let (read_on, may_read) = mpsc::sync_channel::<()>(8);
    let may_read = Arc::new(Mutex::new(may_read));
    let address = server(move |mut reader| {
        let head = head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        if head.starts_with("PUT ") {
            may_read.lock().unwrap().recv().unwrap_or_default();
            std::io::copy(&mut reader, &mut std::io::sink()).unwrap_or_default();
            closed.send(()).unwrap_or_default();
        } else {
            drop(reader.read(&mut [0]));
        }
    });
    let config = config(
        json!([{"name": "app", "servers": [format!("http://{address}")]}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    // So many that each core has some.
    let clients = (0..8).map(|_| {
        let mut client = gateway.connect();
        let head = format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\nabc", 1 << 30);
        client.write_all(head.as_bytes()).unwrap();
        let mut reply = [0; 15];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"HTTP/1.1 200 OK");
        // Until the gateway has had enough of it.
        std::thread::spawn(move || while client.write_all(&[b'x'; 1 << 16]).is_ok() {})
    });
    let clients: Vec<_> = clients.collect();
    for _ in 0..16 {
        assert_eq!(text(&gateway.get("/next")), "ok");
    }
    for client in clients {
        read_on.send(()).unwrap();
        client.join().unwrap();
        is_closed.recv_timeout(PATIENCE).expect("the server is not held for what is left of the body");
    }
}
