//! Tests of the reply reader: lengths, interim replies, reuse, refusals; splits never matter.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Default, PartialEq)]
struct Seen {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Visit for Seen {
    fn head(&mut self, head: &[u8]) {
        self.head.extend_from_slice(head);
    }
    fn body(&mut self, part: &[u8]) {
        self.body.extend_from_slice(part);
    }
}

type Outcome = Result<(Option<usize>, u16, bool, Seen), ResponseError>;

/// Feeds `bytes` cut at `cuts` until the reply is done; then, if it is not, closes.
fn run(bytes: &[u8], cuts: &[usize], to_head: bool) -> Outcome {
    let mut reader = ResponseReader::new(Limits { max_head: 200, max_body: 1_000 });
    reader.begin(to_head);
    let mut seen = Seen::default();
    let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    edges.push(bytes.len());
    edges.sort_unstable();
    let mut from = 0;
    for edge in edges {
        if let Read::Done(used) = reader.read(&bytes[from..edge], &mut seen)? {
            return Ok((Some(from + used), reader.status(), reader.reusable(), seen));
        }
        from = edge;
    }
    let done = reader.close()?;
    Ok((done.then_some(bytes.len()), reader.status(), reader.reusable(), seen))
}

fn whole(bytes: &str) -> (Option<usize>, u16, bool, String) {
    let (used, status, reusable, seen) = run(bytes.as_bytes(), &[], false).unwrap();
    (used, status, reusable, String::from_utf8(seen.body).unwrap())
}

#[test]
fn lengths_follow_the_rfc() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(whole(&format!("{length}HTTP/1.1")), (Some(length.len()), 200, true, "hello".into()));
    let until_close = "HTTP/1.0 404 Not Found\r\n\r\nall of it";
    assert_eq!(whole(until_close), (Some(until_close.len()), 404, false, "all of it".into()));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    assert_eq!(whole(chunked), (Some(chunked.len()), 200, true, "hi".into()));
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(whole(both), (Some(both.len()), 200, false, String::new()));
    let none = "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(whole(&format!("{none}x")), (Some(none.len()), 204, true, String::new()));
}

#[test]
fn interim_replies_are_skipped_and_bounded() {
    let reply = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(whole(reply), (Some(reply.len()), 200, true, "x".into()));
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(20);
    assert_eq!(run(endless.as_bytes(), &[], false), Err(ResponseError::Interim));
}

#[test]
fn a_reply_to_head_has_no_body() {
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let (used, status, reusable, seen) = run(reply, &[], true).unwrap();
    assert_eq!((used, status, reusable, seen.body.len()), (Some(reply.len()), 200, true, 0));
}

#[test]
fn keep_alive_follows_version_and_connection() {
    for (reply, reusable) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", true),
    ] {
        assert_eq!(whole(reply).2, reusable, "{reply}");
    }
}

#[test]
fn what_is_not_http_is_refused() {
    for (bytes, error) in [
        ("SSH-2.0-OpenSSH\r\n", HeadError::StartLine.into()),
        ("HTTP/1.1 2000 OK\r\n\r\n", HeadError::StartLine.into()),
        ("HTTP/2 200\r\n\r\n", HeadError::StartLine.into()),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HeadError::Coding.into()),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", ResponseError::TooLong(1_000)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz", ResponseError::Chunked),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", ResponseError::Truncated),
    ] {
        assert_eq!(run(bytes.as_bytes(), &[], false), Err(error), "{bytes}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(300));
    assert_eq!(run(long.as_bytes(), &[], false), Err(HeadError::TooLong(200).into()));
    assert_eq!(run(long.as_bytes(), &[1, 7, 150], false), Err(HeadError::TooLong(200).into()));
}

fn replies() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(any::<u8>(), 0..60);
    let framed =
        (100u16..600, body, any::<bool>(), any::<bool>()).prop_map(|(status, body, chunked, close)| {
            let connection = if close { "Connection: close\r\n" } else { "" };
            let mut reply = format!("HTTP/1.1 {status} X\r\n{connection}").into_bytes();
            if chunked {
                reply.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for part in body.chunks(7) {
                    reply.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    reply.extend_from_slice(part);
                    reply.extend_from_slice(b"\r\n");
                }
                reply.extend_from_slice(b"0\r\n\r\n");
            } else {
                reply.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                reply.extend_from_slice(&body);
            }
            reply
        });
    let noise = prop::collection::vec(any::<u8>(), 0..80);
    (framed, noise, any::<bool>(), any::<prop::sample::Index>()).prop_map(|(mut reply, noise, tear, at)| {
        if tear {
            let at = at.index(reply.len());
            reply.splice(at..at, noise);
        }
        reply
    })
}

proptest! {
    #[test]
    fn splits_never_change_the_result(bytes in replies(), cuts in prop::collection::vec(any::<usize>(), 0..20), to_head: bool) {
        let (once, split) = (run(&bytes, &[], to_head), run(&bytes, &cuts, to_head));
        // An error may be met before or after more of the body was shown: compare its kind only.
        prop_assert_eq!(once, split);
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(any::<usize>(), 0..5)) {
        let once = run(&bytes, &[], false).is_ok();
        prop_assert_eq!(once, run(&bytes, &cuts, false).is_ok());
    }
}
