//! Bodies pass as they come, and none is cut for being long.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use support::{PATIENCE, TestGateway, config, head, server};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

fn gateway(server: SocketAddr, route: Value) -> TestGateway<Unlimited> {
    let mut all = json!({"name": "all", "upstream": "app"});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    let upstream = json!([{"name": "app", "servers": [format!("http://{server}")]}]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstream, json!([all])))
}

#[test]
fn each_event_arrives_before_the_next_one_is_made() {
    // The server makes an event when it is told that the last one has arrived.
    let (arrived, awaited) = mpsc::sync_channel::<()>(1);
    let awaited = std::sync::Arc::new(std::sync::Mutex::new(awaited));
    let address = server(move |mut reader| {
        while let Ok([_, ..]) = reader.fill_buf() {
            head(&mut reader);
            let mut stream = reader.get_ref().try_clone().unwrap();
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for number in 0..10 {
                let event = format!("data: {number}\n\n");
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).unwrap();
                awaited.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
    });
    let gateway = gateway(address, json!({}));
    // In one piece, and in two, which takes another way through the server in front.
    for request in [&["GET / HTTP/1.1\r\nhost: a\r\n\r\n"][..], &["GET / HTTP/1.1\r\n", "host: a\r\n\r\n"]] {
        let mut client = gateway.connect();
        client.set_nodelay(true).unwrap();
        for part in request {
            client.write_all(part.as_bytes()).unwrap();
        }
        let mut reader = BufReader::new(client);
        assert!(head(&mut reader).contains("text/event-stream"));
        for number in 0..10 {
            let mut received = String::new();
            while !received.contains(&format!("data: {number}\n")) {
                assert!(reader.read_line(&mut received).unwrap() > 0, "{received}");
            }
            arrived.send(()).unwrap();
        }
    }
}

#[test]
fn a_body_may_take_longer_than_the_reply_to_it_may() {
    let address = server(|mut reader| {
        head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        reader.read_exact(&mut vec![0; 8 << 20]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let gateway = gateway(address, json!({"first_byte_timeout_seconds": 1}));
    let mut client = gateway.connect();
    client
        .write_all(format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 8 << 20).as_bytes())
        .unwrap();
    // Twice the time in which the head of a reply must come, in which no reply comes.
    client.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
    for _ in 0..7 {
        client.write_all(&[b'x'; 1 << 20]).unwrap();
        client.read(&mut [0]).unwrap_err();
    }
    client.write_all(&[b'x'; 1 << 20]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = String::new();
    BufReader::new(client).read_line(&mut received).unwrap();
    assert_eq!(received, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn a_server_that_takes_a_body_slowly_is_no_fault_of_the_client() {
    const LENGTH: usize = 32 << 20;
    let (told, done) = mpsc::sync_channel::<()>(1);
    let address = server(move |mut reader| {
        head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        reader.read_exact(&mut vec![0; 1 << 20]).unwrap();
        // Longer than a client may take for as little: all that time it is the server who is waited for, unless
        // the gateway gives up.
        let started = monotonic();
        while started.elapsed() < Duration::from_secs(7) {
            // The client has more to send than fits in between, so there is nothing to wait for but time.
            std::thread::park_timeout(Duration::from_secs(7));
        }
        reader.read_exact(&mut vec![0; LENGTH - (1 << 20)]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        told.send(()).unwrap();
    });
    let gateway = gateway(address, json!({}));
    let mut client = gateway.connect();
    client
        .write_all(format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n").as_bytes())
        .unwrap();
    let mut writer = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&vec![b'x'; LENGTH]));
    assert!(head(&mut BufReader::new(client)).starts_with("HTTP/1.1 200 "));
    sending.join().unwrap().unwrap();
    done.recv_timeout(PATIENCE).unwrap();
}
