//! Bodies pass as they come, and none is cut for being long.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{PATIENCE, TestGateway, config, head, server};
use serde_json::{Value, json};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

fn gateway(server: SocketAddr, route: Value) -> TestGateway {
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
    // Longer than a server is late that stands still for a moment.
    let gateway = gateway(address, json!({"first_byte_timeout_seconds": 3}));
    let mut client = gateway.connect();
    client
        .write_all(format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 8 << 20).as_bytes())
        .unwrap();
    // Twice the time in which the head of a reply must come, in which no reply comes.
    client.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
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

#[test]
fn a_body_is_no_dialogue_for_being_called_grpc() {
    let address = server(|mut reader| {
        head(&mut reader);
        std::io::copy(&mut reader, &mut std::io::sink()).unwrap_or_default();
    });
    let gateway = gateway(address, json!({"idle_timeout_seconds": 1}));
    let mut client = gateway.connect();
    let request =
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 9\r\n\r\nabc";
    client.write_all(request.as_bytes()).unwrap();
    // gRPC is not spoken in HTTP/1.1, so the client owes the rest like any other; it is told so in gRPC all the same.
    let told = head(&mut BufReader::new(client));
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("grpc-status: 4\r\n"), "{told}");
}

#[test]
fn trailers_pass_in_both_directions_without_what_only_a_head_may_state() {
    let (told, got) = mpsc::sync_channel::<String>(1);
    let address = server(move |mut reader| {
        let mut request = head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        // The last chunk, and what follows it up to an empty line.
        while !request.ends_with("0\r\n") {
            assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
        }
        request.push_str(&head(&mut reader));
        told.send(request).unwrap();
        let reply = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, x-set, keep-alive\r\n\r\n\
                     3\r\nabc\r\n0\r\nx-sum: 9\r\nx-set: theirs\r\nkeep-alive: 1\r\nx-unnamed: 1\r\n\r\n";
        stream.write_all(reply.as_bytes()).unwrap();
    });
    let gateway = gateway(address, json!({"response_fields": {"set": {"x-set": "ours"}}}));
    for wants_trailers in [true, false] {
        let te = if wants_trailers { "te: trailers\r\n" } else { "" };
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{te}transfer-encoding: chunked\r\n\
             trailer: x-digest, x-forwarded-for, x_real_ip\r\n\r\n\
             3\r\nabc\r\n0\r\nx-digest: 7\r\nx-forwarded-for: 6.6.6.6\r\nx_real_ip: 6.6.6.6\r\n\r\n"
        );
        let mut client = gateway.connect();
        client.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        let (reply_head, body) = reply.split_once("\r\n\r\n").unwrap();
        let expected =
            if wants_trailers { "3\r\nabc\r\n0\r\nx-sum: 9\r\n\r\n" } else { "3\r\nabc\r\n0\r\n\r\n" };
        assert_eq!(body, expected, "{reply}");
        assert!(reply_head.contains("x-set: ours"), "{reply}");
        let request = got.recv_timeout(PATIENCE).unwrap();
        assert!(request.ends_with("\r\nabc\r\n0\r\nx-digest: 7\r\n\r\n"), "{request}");
        assert!(!request.contains("6.6.6.6"), "{request}");
    }
}

#[test]
fn a_reply_is_cut_when_the_time_for_the_whole_of_it_is_over() {
    let address = server(|mut reader| {
        while let Ok([_, ..]) = reader.fill_buf() {
            let line = head(&mut reader);
            let mut stream = reader.get_ref().try_clone().unwrap();
            if line.starts_with("GET /short") {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
                continue;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
            // Never silent for as long as it may be, and never at an end.
            let drips = line.starts_with("GET /drips");
            while stream.write_all(b"3\r\nabc\r\n").is_ok() {
                if drips {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }
        }
    });
    let gateway = gateway(address, json!({"reply_timeout_seconds": 1, "idle_timeout_seconds": 3600}));
    for path in ["/drips", "/floods"] {
        let started = monotonic();
        let mut client = gateway.connect();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
        let mut received = Vec::new();
        // A reset, or an end without the last chunk.
        drop(client.read_to_end(&mut received));
        assert!(started.elapsed() >= Duration::from_secs(1), "{path}: {:?}", started.elapsed());
        assert!(received.starts_with(b"HTTP/1.1 200 ") && !received.ends_with(b"0\r\n\r\n"), "{path}");
    }
    let mut client = gateway.connect();
    client.write_all(b"GET /short HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert!(received.ends_with("\r\n\r\nok"), "{received}");
}
