//! A decision that is answered at once, from buffer to buffer, reads like one that took the long way.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Running, start};

/// One request with a body, in one piece.
fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST /api/v1/ratelimit HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

/// Everything that comes back, but for the dates. `long_way`: a chunked body comes first, after which
/// hyper serves the connection.
fn replies(service: &Running, long_way: bool, requests: &str) -> String {
    let mut stream = TcpStream::connect(service.address).unwrap();
    let first = match long_way {
        true => "GET /api/v1/health HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        false => "GET /api/v1/health HTTP/1.1\r\nhost: t\r\n\r\n",
    };
    let last = "GET /api/v1/health HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{first}{requests}{last}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("date: ")).collect();
    // Seconds go on while one side is asked after the other.
    (3_500..=3_600).fold(text, |text, seconds| text.replace(&seconds.to_string(), "<an hour>"))
}

#[test]
fn both_ways_answer_alike() {
    let service = start();
    let numbers = r#"{"window_seconds":3600,"request_per_window":3}"#;
    assert_eq!(service.post("/api/v1/configure", numbers).status, 200);
    let json = "content-type: application/json\r\n";
    let ask = |client: char| format!(r#"{{"client_id":"{client}","resource":"r"}}"#);
    let sequence = |client: char| {
        let allowed_and_denied = post(json, &ask(client)).repeat(5);
        let others = [
            post("Content-Type: Application/JSON; charset=utf-8\r\ntraceparent: nonsense\r\n", &ask(client)),
            post("content-type: application/json\r\ncontent-encoding: identity\r\n", &ask(client)),
            post("content-type: application/json\r\ncontent-encoding: gzip\r\n", &ask(client)),
            post("", &ask(client)),
            post("content-type: text/plain\r\n", &ask(client)),
            post(json, r#"{"client_id":"","resource":"r"}"#),
            post(json, r#"{"client_id":"x","client_id":"y","resource":"r"}"#),
            post(json, r#"{"client_id":7,"resource":"r"}"#),
            post(json, r#"{"client_id":"x"}"#),
            post(json, "{"),
            post(json, ""),
            post(json, &ask(client).replace('r', &"r".repeat(600))),
            post(json, &ask(client)).replace("ratelimit ", "ratelimit?x=1 "),
        ];
        allowed_and_denied + &others.concat()
    };
    let short = replies(&service, false, &sequence('a'));
    let long = replies(&service, true, &sequence('b'));
    assert_eq!(short, long);
    let statuses = |status: &str| short.matches(&format!("HTTP/1.1 {status}")).count();
    assert_eq!(
        (statuses("200"), statuses("415"), statuses("400") + statuses("422")),
        (2 + 5 + 3, 3, 7),
        "{short}"
    );
    assert_eq!(short.matches("\"allowed\":true").count(), 3, "{short}");
}
