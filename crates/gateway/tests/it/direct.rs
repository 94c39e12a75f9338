//! Connections without hyper: however a reply is cut into segments it is the same one, and a connection on which the
//! server speaks unasked, or which it closed, gets no further request.

use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::sync_channel;

use crate::support::{Backend, PATIENCE, TestGateway, config, head, load, server, status, text};
use serde_json::json;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

fn in_front_of(server: std::net::SocketAddr) -> TestGateway {
    let config = config(
        json!([{"name": "app", "servers": [format!("http://{server}")], "retries": {"attempts": 1}}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

#[test]
fn a_reply_is_the_same_however_it_is_cut() {
    let chunks: String = (0..5_000).map(|_| "3\r\nabc\r\n").collect();
    let many = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let large = format!("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n{}", "x".repeat(300_000));
    for (reply, expected, piece) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc".to_owned(), "abc".to_owned(), 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), String::new(), 1),
        (
            "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc".to_owned(),
            "abc".to_owned(),
            1,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\nx-sum: 9\r\n\r\n".to_owned(),
            "abc".to_owned(),
            1,
        ),
        (many.clone(), "abc".repeat(5_000), many.len()),
        (many, "abc".repeat(5_000), 1_000),
        (large, "x".repeat(300_000), 70_000),
    ] {
        let sent = reply.clone();
        let gateway = in_front_of(server(move |mut reader| {
            reader.get_ref().set_nodelay(true).unwrap();
            while !reader.fill_buf().unwrap().is_empty() {
                head(&mut reader);
                for part in sent.as_bytes().chunks(piece) {
                    reader.get_mut().write_all(part).unwrap();
                }
            }
        }));
        for _ in 0..2 {
            let got = gateway.get("/");
            assert_eq!(status(&got), 200, "{}", &reply[..reply.len().min(100)]);
            assert!(text(&got) == expected, "{}", &reply[..reply.len().min(100)]);
        }
    }
}

/// One client connection, so that one core has all requests.
fn ask(client: &mut std::net::TcpStream) -> String {
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut reader = std::io::BufReader::new(client);
    let head = head(&mut reader);
    let mut body = [0; 4];
    reader.read_exact(&mut body).unwrap();
    format!("{} {}", &head[9..12], String::from_utf8_lossy(&body))
}

#[test]
fn fault_62_what_a_server_says_unasked_is_no_reply() {
    for unasked in [&b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"[..], b"x", b""] {
        let connections = Arc::new(AtomicUsize::new(0));
        let (asked, speak) = sync_channel::<()>(0);
        let (spoken, go_on) = sync_channel::<()>(0);
        let (counted, talk) = (Arc::clone(&connections), Arc::new((Mutex::new(speak), spoken)));
        let gateway = in_front_of(server(move |mut reader| {
            let is_first = counted.fetch_add(1, SeqCst) == 0;
            while !reader.fill_buf().unwrap().is_empty() {
                head(&mut reader);
                reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood").unwrap();
                if is_first {
                    talk.0.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                    reader.get_mut().write_all(unasked).unwrap();
                    if unasked.is_empty() {
                        reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
                    }
                    talk.1.send(()).unwrap();
                }
            }
        }));
        let mut client = gateway.connect();
        assert_eq!(ask(&mut client), "200 good");
        asked.send(()).unwrap();
        go_on.recv_timeout(PATIENCE).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&mut client), "200 good", "{unasked:?}");
        }
        assert_eq!(connections.load(SeqCst), 2, "{unasked:?}: the second connection is kept");
    }
}

#[test]
fn of_four_thousand_requests_fewer_than_one_in_a_hundred_opens_a_connection() {
    let backend = Backend::named("kept");
    let gateway = in_front_of(backend.address);
    assert!(load(&gateway, 500).iter().all(|status| *status == 200));
    assert_eq!(backend.got().len(), 4_000);
    println!("{} connections for 4,000 requests of 8 clients", backend.connections());
    assert!(backend.connections() <= 40, "{} connections", backend.connections());
}
