//! A decision that is answered at once, from buffer to buffer, reads like one that took the long way.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use tidegate_access::origins::TrustedOrigins;
use tidegate_algorithms::policy::{parse, parse_sources};
use tidegate_limiter::policy_set::{AttributeSources, FileLayer};

use crate::api::support::{Running, Setup, start, start_with};

/// One request with a body, in one piece.
fn post_to(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

fn post(fields: &str, body: &str) -> String {
    post_to("/api/v1/ratelimit", fields, body)
}

fn check(fields: &str) -> String {
    format!("GET /v1/check HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
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
    let (dates, text): (Vec<&str>, String) = {
        let (dates, others): (Vec<_>, Vec<_>) =
            text.split_inclusive('\n').partition(|line| line.starts_with("date: "));
        (dates, others.concat())
    };
    assert_eq!(dates.len(), text.matches("HTTP/1.1 ").count(), "each reply has one date");
    without_times(&text)
}

/// Time goes on while one side is asked after the other: what is left of an hour, in seconds or milliseconds. Each number
/// by itself, for 3600 begins 3600000, and not 3599999.
fn without_times(text: &str) -> String {
    let numbers = text.split_inclusive(|character: char| !character.is_ascii_digit());
    let hidden = numbers.map(|number| {
        let digits = number.trim_end_matches(|character: char| !character.is_ascii_digit());
        let is_time = digits.len() >= 4 && (digits.starts_with("35") || digits.starts_with("36"));
        if is_time { number.replace(digits, &"x".repeat(digits.len())) } else { number.to_owned() }
    });
    hidden.collect()
}

#[test]
fn times_are_hidden_whatever_other_times_there_are() {
    let both = [r#"{"a":3600,"b":3600000,"c":35}"#, r#"{"a":3600,"b":3599999,"c":35}"#];
    assert_eq!(both.map(without_times), [r#"{"a":xxxx,"b":xxxxxxx,"c":35}"#; 2]);
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

/// Three units an hour for each client, whose name is in a field or a cookie; a second policy that only looks on, and a
/// third for one path.
fn policies() -> FileLayer {
    let policies = [
        json!({"name": "three", "key": ["client_id"], "algorithm": "sliding_log", "limit": 3, "window_seconds": 3_600}),
        json!({
            "name": "seen", "key": ["session"], "mode": "shadow", "algorithm": "sliding_log", "limit": 1,
            "window_seconds": 3_600,
        }),
        json!({
            "name": "paid", "key": ["client_id"], "match": {"path": "/pay", "method": "POST"},
            "algorithm": "sliding_log", "limit": 1, "window_seconds": 3_600,
        }),
    ];
    let sources = json!({"client_id": {"header": "X-Client"}, "session": {"cookie": "sid"}});
    let (_, forms) = AttributeSources::PROTOCOLS[0];
    FileLayer {
        policies: policies.iter().map(|policy| parse(policy, "").unwrap()).collect(),
        sources: AttributeSources {
            check: parse_sources(&sources, "", forms).unwrap(),
            ..AttributeSources::default()
        },
        ..FileLayer::default()
    }
}

#[test]
fn both_ways_decide_alike() {
    let service = start_with(policies(), None);
    let json = "content-type: application/json\r\n";
    let decide = |body: &str| post_to("/v1/decisions", json, body);
    let sequence = |client: char| {
        let ask =
            |more: &str| format!(r#"{{"attributes":{{"client_id":"{client}","session":"{client}"{more}}}}}"#);
        let peek = format!(r#"{{"attributes":{{"client_id":"{client}"}},"cost":2,"peek":true}}"#);
        let costly = ask("").replace("}}", r#"},"cost":1000000001}"#);
        [
            decide(&peek),
            decide(&ask(r#","path":"//pay/","method":"POST""#)),
            decide(&ask(r#","path":"/p%61y","method":"POST""#)),
            decide(&ask(r#","path":"/a%2Fb""#)),
            decide(&ask("")).repeat(4),
            decide(&format!("[{},{}]", ask(""), peek)),
            decide(&costly),
            decide(r#"{"attributes":{"nobody":"looks"}}"#),
            decide(r#"{"attributes":{"client_id":7}}"#),
            decide("{"),
            post_to("/v1/decisions", "", &ask("")),
        ]
        .concat()
    };
    let short = replies(&service, false, &sequence('a'));
    assert_eq!(short, replies(&service, true, &sequence('b')));
    let statuses = |status: &str| short.matches(&format!("HTTP/1.1 {status}")).count();
    assert_eq!(
        (statuses("200"), statuses("415"), statuses("400") + statuses("422")),
        (2 + 10, 1, 3),
        "{short}"
    );
    assert!(short.contains(r#""allowed":false"#) && short.contains("tidegate-no-match: allowed"), "{short}");
}

#[test]
fn both_ways_check_alike() {
    let service = start_with(policies(), None);
    let sequence = |client: char| {
        let known = format!("X-Client: {client}\r\n");
        let of = |more: &str| check(&format!("{known}{more}"));
        let pay = "x-original-uri: /pay?x=1\r\nx-original-method: POST\r\n";
        [
            of(pay).repeat(2),
            of(&format!("cookie: a=b; sid={client}\r\n")).repeat(3),
            of("cookie: sid=1\r\ncookie: sid=2\r\n"),
            of(&known),
            of("x-original-uri: /a%2Fb\r\n"),
            of("x-original-uri: /\r\nx-forwarded-uri: /\r\n"),
            of("content-length: 2\r\n") + "hi",
            of("").replace("/check ", "/check?x=1 "),
            of("").replace("GET", "DELETE"),
            of(&format!("x-long: {}\r\n", "x".repeat(600))),
        ]
        .concat()
    };
    let short = replies(&service, false, &sequence('a'));
    assert_eq!(short, replies(&service, true, &sequence('b')));
    let statuses = |status: &str| short.matches(&format!("HTTP/1.1 {status}")).count();
    assert_eq!((statuses("204"), statuses("429"), statuses("400")), (3, 6, 4), "{short}");
    assert!(short.contains("violated-policies"), "{short}");
}

/// A cache that keeps a reply for one origin is told so, also where the request named none.
#[test]
fn both_ways_tell_caches_of_origins() {
    let origins = TrustedOrigins { cors: vec!["https://a.example".to_owned()], ..TrustedOrigins::default() };
    let service = Setup { origins, ..Setup::default() }.start();
    let json = "content-type: application/json\r\n";
    let ask = post(json, r#"{"client_id":"c","resource":"r"}"#);
    let requests = [
        check(""),
        check("origin: https://a.example\r\n"),
        check("origin: https://b.example\r\n"),
        ask.clone(),
        ask.replace(json, &format!("{json}origin: https://a.example\r\n")),
    ];
    // One at a time: the state of the one counter is not compared.
    for request in requests {
        let vary = |long_way| {
            let replies = replies(&service, long_way, &request);
            // The first and the last are those of requests by GET that take the long way.
            (
                replies.matches("vary: origin").count(),
                replies.matches("allow-origin: https://a.example").count(),
            )
        };
        assert_eq!(vary(false), vary(true), "{request}");
    }
}
