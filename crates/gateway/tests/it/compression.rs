//! Compressed replies: for who asks, of what gets smaller, and never what must not be changed; events are not held back.

use std::io::{BufRead, BufReader, Read, Write};

use crate::support::{Backend, Got, PATIENCE, Reaction, TestGateway, config, head, reply, server, status};
use flate2::read::GzDecoder;
use serde_json::json;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

const PLAIN: &str = "{\"name\":\"a value that repeats\"},";

fn gateway(url: &str) -> TestGateway {
    let upstreams = json!([{"name": "app", "servers": [url]}]);
    let routes = json!([
        {"name": "all", "upstream": "app", "compress": true},
        {"name": "plain", "path": "/plain", "upstream": "app"},
    ]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, routes))
}

fn ask(gateway: &TestGateway, method: &str, path: &str, accepted: &str) -> Got {
    gateway.send(&format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\naccept-encoding: {accepted}\r\n\r\n"
    ))
}

fn decoded(got: &Got) -> Vec<u8> {
    let mut plain = Vec::new();
    match got.field("content-encoding") {
        Some("gzip") => drop(GzDecoder::new(&*got.body).read_to_end(&mut plain).unwrap()),
        Some("zstd") => plain = zstd::decode_all(&*got.body).unwrap(),
        Some("br") => drop(brotli::Decompressor::new(&*got.body, 4_096).read_to_end(&mut plain).unwrap()),
        other => panic!("{other:?}"),
    }
    plain
}

#[test]
fn a_reply_is_compressed_for_who_asks_and_is_the_same() {
    let (short, page, whole) = (PLAIN.repeat(10), PLAIN.repeat(100), PLAIN.repeat(10_000));
    let backend = Backend::start(move |got| {
        let body = match got.line.split(' ').nth(1).unwrap() {
            "/short" => &short,
            "/page" => &page,
            _ => &whole,
        };
        reply(200, &["content-type: application/json", "etag: \"a\"", "accept-ranges: bytes"], body)
    });
    let gateway = gateway(&backend.url());
    let plain = PLAIN.repeat(10_000).into_bytes();
    for (accepted, coding) in
        [("gzip", "gzip"), ("gzip, br", "br"), ("gzip, br, zstd", "zstd"), ("zstd;q=0.1, gzip", "gzip")]
    {
        let got = ask(&gateway, "GET", "/", accepted);
        assert_eq!((status(&got), got.field("content-encoding")), (200, Some(coding)));
        assert_eq!((got.field("vary"), got.field("etag")), (Some("accept-encoding"), Some("W/\"a\"")));
        assert_eq!(got.field("accept-ranges"), None);
        assert!(got.body.len() * 10 < plain.len() && decoded(&got) == plain, "{}", got.body.len());
    }
    // One that is there in one read, and one whose request goes to the server as it comes.
    let got = ask(&gateway, "GET", "/page", "gzip");
    assert_eq!((got.field("content-encoding"), got.field("content-length").is_some()), (Some("gzip"), true));
    assert_eq!(decoded(&got), PLAIN.repeat(100).into_bytes());
    let got = gateway.send(
        "POST / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    );
    assert_eq!((got.field("content-encoding"), decoded(&got) == plain), (Some("gzip"), true));
    let got = ask(&gateway, "GET", "/", "deflate");
    assert_eq!((got.field("content-encoding"), got.field("vary")), (None, Some("accept-encoding")));
    assert!(got.field("etag") == Some("\"a\"") && got.body == plain);
    for path in ["/short", "/plain"] {
        let got = ask(&gateway, "GET", path, "gzip");
        assert_eq!((status(&got), got.field("content-encoding")), (200, None), "{path}");
    }
}

#[test]
fn what_must_not_be_changed_arrives_as_it_was_sent() {
    let body = PLAIN.repeat(1_000);
    let sent = body.clone();
    let backend = Backend::start(move |got| {
        let (status, field) = match got.line.split(' ').nth(1).unwrap() {
            "/encoded" => (200, "content-encoding: br"),
            "/fixed" => (200, "cache-control: no-transform"),
            "/part" => (206, "content-range: bytes 0-9/99"),
            "/digest" => (200, "content-digest: sha-256=:a:"),
            "/error" => (500, "x-other: a"),
            "/image" => (200, "content-type: image/png"),
            _ => (200, "x-other: a"),
        };
        let kind =
            if field.starts_with("content-type") { "x-kind: image" } else { "content-type: text/plain" };
        reply(status, &[kind, field], &sent)
    });
    let gateway = gateway(&backend.url());
    let fixed = gateway
        .send("GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip\r\ncache-control: no-transform\r\n\r\n");
    assert_eq!((fixed.field("content-encoding"), fixed.body == body.as_bytes()), (None, true));
    for path in ["/encoded", "/fixed", "/part", "/digest", "/error", "/image"] {
        let got = ask(&gateway, "GET", path, "gzip, zstd");
        let coding = if path == "/encoded" { Some("br") } else { None };
        assert_eq!((got.field("content-encoding"), got.body == body.as_bytes()), (coding, true), "{path}");
    }
}

#[test]
fn head_and_304_have_the_fields_of_the_compressed_reply() {
    let backend = Backend::start(|got| {
        let kind = "content-type: text/plain\r\netag: \"a\"\r\n";
        let text = if got.line.starts_with("HEAD /long ") {
            format!("HTTP/1.1 200 OK\r\n{kind}content-length: 5000\r\n\r\n")
        } else if got.line.starts_with("HEAD") {
            format!("HTTP/1.1 200 OK\r\n{kind}content-length: 5\r\n\r\n")
        } else {
            "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".to_owned()
        };
        Reaction::Bytes(text.into_bytes())
    });
    let gateway = gateway(&backend.url());
    let of_head = |path: &str, accepted: &str| {
        let mut stream = gateway.connect();
        let asked = format!(
            "HEAD {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\naccept-encoding: {accepted}\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).unwrap();
        let mut read = String::new();
        stream.read_to_string(&mut read).unwrap();
        read.to_lowercase()
    };
    let long = of_head("/long", "gzip");
    assert!(long.contains("content-encoding: gzip\r\n") && long.contains("etag: w/\"a\"\r\n"), "{long}");
    assert!(!long.contains("content-length") && !long.contains("transfer-encoding"), "{long}");
    for (path, accepted, length) in [("/short", "gzip", 5), ("/long", "identity", 5_000)] {
        let plain = of_head(path, accepted);
        assert!(plain.contains("vary: accept-encoding\r\n") && plain.contains("etag: \"a\"\r\n"), "{plain}");
        assert!(plain.contains(&format!("content-length: {length}\r\n")), "{plain}");
        assert!(!plain.contains("content-encoding"), "{plain}");
    }
    for (accepted, tag) in [("gzip", "W/\"a\""), ("identity", "\"a\"")] {
        let got = ask(&gateway, "GET", "/", accepted);
        assert_eq!(
            (status(&got), got.field("etag"), got.field("vary")),
            (304, Some(tag), Some("accept-encoding"))
        );
    }
}

#[test]
fn fault_62_a_reply_that_breaks_off_has_no_end_either() {
    let body = PLAIN.repeat(1_000);
    let backend = Backend::start(move |_| {
        let half = &body[..body.len() / 2];
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        Reaction::Last(format!("{head}{half}").into_bytes())
    });
    let gateway = gateway(&backend.url());
    let mut stream = gateway.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: zstd\r\n\r\n").unwrap();
    let mut read = Vec::new();
    // The connection is closed, perhaps by a reset.
    drop(stream.read_to_end(&mut read));
    let head = String::from_utf8_lossy(&read).to_lowercase();
    assert!(head.contains("content-encoding: zstd") && head.contains("transfer-encoding: chunked"), "{head}");
    assert!(!read.ends_with(b"0\r\n\r\n"), "{head}");
    let begun = monotonic();
    while gateway.gateway.compression().at_once > 0 {
        assert!(begun.elapsed() < PATIENCE, "its place is given back");
        std::thread::yield_now();
    }
    assert_eq!(gateway.gateway.compression().compressed, 1);
}

#[test]
fn an_event_is_sent_when_it_is_there_and_the_stream_ends_whole() {
    let (tell, go_on) = std::sync::mpsc::sync_channel::<()>(0);
    let go_on = std::sync::Arc::new(std::sync::Mutex::new(go_on));
    let address = server(move |mut reader| {
        head(&mut reader);
        let stream = reader.get_mut();
        let begun =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(begun.as_bytes()).unwrap();
        for event in ["data: one\n\n", "data: two\n\n"] {
            stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).unwrap();
            // The next one is sent when this one has arrived.
            go_on.lock().unwrap().recv().unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = gateway(&format!("http://{address}"));
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    let begun = head(&mut reader).to_lowercase();
    assert!(begun.contains("content-encoding: gzip"), "{begun}");
    let mut decoder = GzDecoder::new(BufReader::new(Chunks { reader, left: 0 }));
    for event in ["data: one\n\n", "data: two\n\n"] {
        let mut read = vec![0; event.len()];
        decoder.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), event);
        tell.send(()).unwrap();
    }
    assert_eq!(decoder.read_to_end(&mut Vec::new()).unwrap(), 0, "the end is that of a whole gzip file");
}

/// What is in the chunks of a body.
struct Chunks<R> {
    reader: R,
    left: usize,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                line.clear();
                self.reader.read_line(&mut line)?;
            }
            self.left = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        }
        let most = self.left.min(into.len());
        let count = self.reader.read(&mut into[..most])?;
        self.left -= count;
        Ok(count)
    }
}
