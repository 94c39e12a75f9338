//! `POST /metrics` and the source's other replies.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use crate::support::{Setup, TestIntake, batch, start};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tidegate_intake::access::{Access, AccessError, Right};
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, LimitsAnswer, Ruling};

const GOOD: &[u8] = br#"{"metrics":[{"name":"cpu.usage","value":81.5,"tags":{"host":"a"}}]}"#;

#[test]
fn a_batch_is_on_the_disk_when_it_is_acknowledged() {
    let intake = start();
    let reply = intake.post("/metrics", GOOD);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text(), r#"{"success":true,"metrics_processed":1}"#);
    assert_eq!(reply.field("tidegate-ack"), Some("fsync"));
    assert_eq!(reply.field("content-type"), Some("application/json"));
    let lines = intake.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["name"], "cpu.usage");
    assert_eq!(lines[0]["tags"], json!({"host": "a"}));
    assert_eq!(lines[0]["client"], "127.0.0.1");
}

#[test]
fn a_request_says_how_safe_it_wants_its_batch() {
    let intake = start();
    for word in ["memory", "written", "fsync"] {
        let in_query = intake.post(&format!("/metrics?ack={word}"), GOOD);
        let in_field = intake.send("/metrics", &[("tidegate-ack", word)], GOOD);
        for reply in [in_query, in_field] {
            assert_eq!((reply.status, reply.field("tidegate-ack")), (200, Some(word)));
        }
    }
    let reply = intake.post("/metrics?ack=maybe", GOOD);
    assert_eq!((reply.status, reply.json()), (400, json!({"error": "ack must be memory, written or fsync"})));
}

#[test]
fn what_is_refused_is_told_as_the_source_words_it_and_nothing_is_kept() {
    let intake = start();
    for (body, error) in [
        (&br#"{"metrics":[]}"#[..], "Batch cannot be empty"),
        (
            br#"{"metrics":[{"name":"a","value":1},{"name":"b","value":"1"}]}"#,
            "Invalid metric: metrics[1]: value must be a number",
        ),
        (br#"{"metrics":[{"name":"a"}]}"#, "Invalid metric: metrics[0]: value is missing"),
        (
            br#"{"metrics":[{"name":"a","value":1,"type":"meter"}]}"#,
            "Invalid metric: metrics[0]: the type must be gauge, counter, histogram or summary",
        ),
        (br#"{}"#, "Invalid batch: metrics is missing"),
    ] {
        let reply = intake.post("/metrics", body);
        assert_eq!((reply.status, reply.json()), (400, json!({ "error": error })));
    }
    assert_eq!(intake.post("/metrics", &batch(1_001)).status, 400);
    assert_eq!(intake.lines(), Vec::<Value>::new());
    let numbers = intake.get("/metrics", &[]).json();
    assert_eq!(
        numbers,
        json!({"metrics_received": 0, "batches_processed": 0, "validation_errors": 6, "rate_limited_requests": 0})
    );
}

#[test]
fn a_part_of_a_batch_is_kept_where_that_is_asked_for() {
    let intake = start();
    let body = br#"{"metrics":[{"name":"a","value":1},{"name":"","value":1},{"name":"c","value":3}]}"#;
    let reply = intake.post("/metrics?partial=true", body);
    assert_eq!(
        (reply.status, reply.json()),
        (
            200,
            json!({"success": true, "metrics_processed": 2, "metrics_rejected": 1, "rejected": [
                {"index": 1, "error": "the name has 0 bytes; 1 to 255 are accepted"}
            ]})
        )
    );
    assert_eq!(intake.lines().len(), 2);
    assert_eq!(intake.get("/metrics", &[]).json()["validation_errors"], 1);
}

#[test]
fn a_body_of_more_than_4095_bytes_is_kept_whole() {
    let intake = start();
    let body = batch(1_000);
    assert!(body.len() > 4_095);
    assert_eq!(intake.post("/metrics", &body).json(), json!({"success": true, "metrics_processed": 1_000}));
    let mut stream = intake.connect();
    let head = format!(
        "POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    for piece in body.chunks(1_000) {
        stream.write_all(piece).unwrap();
    }
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with(r#"{"success":true,"metrics_processed":1000}"#), "{reply}");
    assert_eq!(intake.lines().len(), 2_000);
}

#[test]
fn sixteen_idle_sockets_stop_nobody() {
    let intake = start();
    let idle: Vec<_> = (0..16).map(|_| intake.connect()).collect();
    let begun: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = intake.connect();
            stream.write_all(b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-le").unwrap();
            stream
        })
        .collect();
    assert_eq!(intake.post("/metrics", GOOD).status, 200);
    drop((idle, begun));
}

#[test]
fn a_line_feed_alone_in_a_head_is_answered_400_and_stops_nobody() {
    let intake = start();
    for _ in 0..20 {
        let reply = intake.exchange(b"POST /metrics HTTP/1.1\nhost: a\nX:\ncontent-length: 0\n\n");
        assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    }
    assert_eq!(intake.post("/metrics", GOOD).status, 200);
}

#[test]
fn fault_29_truncated_bodies_and_wrong_lengths_keep_nothing() {
    let intake = start();
    let head = |length: usize| {
        format!("POST /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
    };
    let body = batch(3);
    let short = [head(body.len() - 1).as_bytes(), &body].concat();
    let reply = intake.exchange(&short);
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    let mut cut = intake.connect();
    cut.write_all(&[head(body.len() + 1).as_bytes(), &body].concat()).unwrap();
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    drop(cut.read_to_string(&mut reply));
    assert!(!reply.starts_with("HTTP/1.1 2"), "{reply}");
    for deep in ["[".repeat(10_000), format!("{{\"metrics\":[{}", "{\"tags\":".repeat(10_000))] {
        assert_eq!(intake.post("/metrics", deep.as_bytes()).status, 400);
    }
    assert_eq!(intake.lines(), Vec::<Value>::new());
}

#[test]
fn fault_76_a_gigabyte_of_gzip_is_refused_in_little_memory() {
    let mut setup = Setup::default();
    setup.settings.body_bytes = 2 << 20;
    let intake = TestIntake::start(setup);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..64 {
        encoder.write_all(&blanks).unwrap();
    }
    // Members of gzip stand one after another.
    let bomb = encoder.finish().unwrap().repeat(16);
    assert!(bomb.len() < 2 << 20, "{}", bomb.len());
    let before = resident_kib();
    for _ in 0..5 {
        let reply = intake.send("/metrics", &[("content-encoding", "gzip")], &bomb);
        assert_eq!(reply.status, 413, "{}", reply.text());
    }
    assert!(resident_kib() < before + (64 << 10), "{before} {}", resident_kib());
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn compressed_batches_are_taken() {
    let intake = start();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(GOOD).unwrap();
    let gzip = encoder.finish().unwrap();
    assert_eq!(intake.send("/metrics", &[("content-encoding", "gzip")], &gzip).status, 200);
    let zstd = zstd::encode_all(GOOD, 1).unwrap();
    assert_eq!(intake.send("/metrics", &[("content-encoding", "zstd")], &zstd).status, 200);
    assert_eq!(intake.send("/metrics", &[("content-encoding", "br")], GOOD).status, 415);
    assert_eq!(intake.send("/metrics", &[("content-encoding", "zstd")], GOOD).status, 400);
    assert_eq!(intake.lines().len(), 2);
}

#[test]
fn a_body_over_the_bound_is_refused_by_its_announced_length() {
    let intake = start();
    let reply = intake.exchange(b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 1048577\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
}

#[test]
fn the_sources_other_pages_are_there() {
    let intake = start();
    let health = intake.get("/health", &[]);
    assert_eq!((health.status, health.json()), (200, json!({"status": "healthy", "service": "ingestion"})));
    intake.post("/metrics", &batch(3));
    let expected = json!({"metrics_received": 3, "batches_processed": 1, "validation_errors": 0, "rate_limited_requests": 0});
    assert_eq!(intake.get("/metrics", &[("accept", "*/*")]).json(), expected);
    assert_eq!(intake.get("/metrics", &[("accept", "text/plain;version=0.0.4")]).text(), "the page");
    assert_eq!(intake.get("/nothing", &[]).status, 404);
    let wrong = Answer::of_delete(&intake);
    assert_eq!(wrong, (405, Some("GET, POST".to_owned())));
}

struct Answer;

impl Answer {
    fn of_delete(intake: &TestIntake) -> (u16, Option<String>) {
        let reply = support::agent().delete(intake.url("/metrics")).call().unwrap();
        let allow = reply.headers().get("allow").map(|value| value.to_str().unwrap().to_owned());
        (reply.status().as_u16(), allow)
    }
}

/// Allows so many metrics.
#[derive(Debug)]
struct Quota(Arc<AtomicU64>);

impl<'b> Limits<LimitedBatch<'b>> for Quota {
    fn charge<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        batch: &'a LimitedBatch<'b>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let left = self.0.load(SeqCst);
            let mut fields = HeaderMap::new();
            if left < batch.metrics {
                fields.insert("retry-after", HeaderValue::from_static("7"));
                return Ruling {
                    denial: Some(Denial::Quota { policies: Vec::new() }),
                    fields,
                    ..Ruling::default()
                };
            }
            self.0.store(left - batch.metrics, SeqCst);
            fields.insert("ratelimit", HeaderValue::from_static("\"a\";r=1"));
            Ruling { fields, ..Ruling::default() }
        })
    }

    fn refund<'a>(&'a self, _policies: &'a [Arc<str>], batch: &'a LimitedBatch<'b>) -> LimitsAnswer<'a, ()> {
        Box::pin(async move {
            self.0.fetch_add(batch.metrics, SeqCst);
        })
    }
}

#[test]
fn where_no_policies_are_listed_the_limiter_is_not_asked() {
    let quota = Quota(Arc::new(AtomicU64::new(0)));
    let intake = TestIntake::start(Setup { policies: Arc::default(), ..Setup::limited(quota) });
    assert_eq!(intake.post("/metrics", &batch(3)).status, 200);
}

#[test]
fn a_client_over_its_limit_is_told_when_to_come_back_and_nothing_is_kept() {
    let intake = TestIntake::start(Setup::limited(Quota(Arc::new(AtomicU64::new(5)))));
    assert_eq!(intake.post("/metrics", &batch(3)).status, 200);
    let denied = intake.post("/metrics", &batch(3));
    assert_eq!((denied.status, denied.json()), (429, json!({"error": "Rate limit exceeded"})));
    assert_eq!(denied.field("retry-after"), Some("7"));
    assert_eq!(intake.post("/metrics", &batch(2)).status, 200);
    assert_eq!(intake.lines().len(), 5);
    assert_eq!(intake.get("/metrics", &[]).json()["rate_limited_requests"], 1);
}

/// A list of one token.
struct OneToken(Right);

impl Access for OneToken {
    fn admit(&self, right: Right, secret: Option<&[u8]>) -> Result<Option<Arc<str>>, AccessError> {
        match secret {
            Some(b"secret") if right == self.0 => Ok(Some("shop".into())),
            Some(b"secret") => Err(AccessError::Missing(right)),
            _ => Err(AccessError::Unknown),
        }
    }
}

#[test]
fn fault_45_a_token_is_demanded_and_names_the_client() {
    let guarded = |right| TestIntake::start(Setup { access: Arc::new(OneToken(right)), ..Setup::default() });
    let intake = guarded(Right::Ingest);
    let unknown = intake.post("/metrics", GOOD);
    assert_eq!((unknown.status, unknown.field("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(intake.send("/metrics", &[("authorization", "Bearer wrong")], GOOD).status, 401);
    assert_eq!(intake.send("/metrics", &[("authorization", "Bearer secret")], GOOD).status, 200);
    assert_eq!(intake.lines()[0]["client"], "shop");
    let reader = guarded(Right::Read);
    assert_eq!(reader.send("/metrics", &[("authorization", "Bearer secret")], GOOD).status, 403);
}

#[test]
fn fault_51_a_page_in_a_browser_sends_nothing_without_a_token() {
    let intake = start();
    let reply =
        intake.send("/metrics", &[("origin", "https://evil.example"), ("content-type", "text/plain")], GOOD);
    assert_eq!(reply.status, 403);
    assert_eq!(intake.lines(), Vec::<Value>::new());
}

#[test]
fn a_configured_field_names_the_client() {
    let mut setup = Setup::default();
    setup.settings.client_field = Some(http::HeaderName::from_static("x-client"));
    let intake = TestIntake::start(setup);
    assert_eq!(intake.send("/metrics", &[("x-client", "web")], GOOD).status, 200);
    assert_eq!(intake.lines()[0]["client"], "web");
}

#[test]
fn fault_30_a_full_queue_is_answered_503_with_a_time_to_come_back_and_loses_nothing() {
    // After the first flush the next one is an hour away: the queue fills on any disk.
    let setup = Setup {
        log: Box::new(|settings| {
            (settings.queue_bytes, settings.flush_gap) = (64 << 10, Duration::from_secs(3_600));
        }),
        ..Setup::default()
    };
    let intake = TestIntake::start(setup);
    let body = batch(200);
    assert_eq!(intake.post("/metrics", &body).status, 200);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| intake.post("/metrics", &body).status);
        let log = intake.intake.log();
        support::eventually("it waits", || (log.statistics().partitions[0].queue_bytes > 0).then_some(()));
        for _ in 0..10 {
            let refused = intake.post("/metrics", &body);
            assert_eq!(refused.status, 503, "{}", refused.text());
            assert_eq!(refused.json(), json!({"error": "Server overloaded, try again later"}));
            assert_eq!(refused.field("retry-after"), Some("1"));
        }
        // What waits is written at the end.
        log.close();
        assert_eq!(waiting.join().unwrap(), 200);
    });
    assert_eq!(intake.kept().len(), 400);
}

#[test]
fn fault_28_a_batch_that_is_sent_again_is_kept_once() {
    let intake = start();
    let send = |key: &str, body: &[u8]| intake.send("/metrics", &[("idempotency-key", key)], body);
    for _ in 0..3 {
        let reply = send("first", &batch(3));
        assert_eq!((reply.status, reply.json()), (200, json!({"success": true, "metrics_processed": 3})));
        assert_eq!(reply.field("tidegate-ack"), Some("fsync"));
    }
    assert_eq!(intake.lines().len(), 3);
    assert_eq!(send("first", &batch(4)).status, 422);
    assert_eq!(send("second", &batch(3)).status, 200);
    assert_eq!(intake.post("/metrics", &batch(3)).status, 200);
    assert_eq!(intake.lines().len(), 9);
    let refused = send("third", b"{}");
    assert_eq!(refused.status, 400);
    assert_eq!(send("third", &batch(1)).status, 200, "what was refused may be mended");
    assert_eq!(send(&"k".repeat(256), &batch(1)).status, 400);
}

#[test]
fn fault_28_many_at_once_under_one_key_keep_one_batch() {
    let intake = start();
    let body = batch(100);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                // The same batch may be under way: then it is worth another try.
                while intake.send("/metrics", &[("idempotency-key", "a")], &body).status != 200 {}
            });
        }
    });
    assert_eq!(intake.lines().len(), 100);
}

#[test]
fn a_drain_keeps_what_was_accepted_and_takes_no_more() {
    let intake = start();
    assert_eq!(intake.post("/metrics?ack=memory", &batch(500)).status, 200);
    assert_eq!(intake.drain().aborted, 0);
    assert_eq!(intake.lines().len(), 500);
}
