//! What senders leave out or get wrong, which the programs that they were made for take nevertheless.

use crate::support::start;
use serde_json::json;

const REMOTE_WRITE: (&str, &str) = ("content-type", "application/x-protobuf");

/// A series of remote write 1.0 with one sample.
fn series(name: &[u8], job: &[u8]) -> Vec<u8> {
    let size = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let label = |name: &[u8], value: &[u8]| {
        let label = [&[0x0a, size(name)][..], name, &[0x12, size(value)], value].concat();
        [&[0x0a, size(&label)][..], &label].concat()
    };
    let sample = b"\x12\x0b\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x01";
    let series = [&label(b"__name__", name)[..], &label(b"job", job), sample].concat();
    [&[0x0a, size(&series)][..], &series].concat()
}

fn snappy(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(body).unwrap()
}

/// vmagent and OpenTelemetry's collector pass on what bytes they are given.
#[test]
fn a_series_that_is_not_utf8_does_not_lose_the_others_of_its_request() {
    let intake = start();
    let body = snappy(&[series(b"bad", b"\xff\xfe"), series(b"up", b"a")].concat());
    let told = intake.send("/api/v1/write", &[REMOTE_WRITE, ("content-encoding", "snappy")], &body);
    assert_eq!(told.status, 400);
    assert!(told.text().contains("not UTF-8"), "{}", told.text());
    let lines = intake.lines();
    assert_eq!((lines.len(), &lines[0]["name"]), (1, &json!("up")));
}

/// Prometheus takes the type and the compression for granted, and Fluent Bit does not say that it compresses nothing.
#[test]
fn a_remote_write_that_does_not_say_what_it_is_is_read() {
    let quoted = ("content-type", "application/x-protobuf;proto=\"prometheus.WriteRequest\"");
    let (snappy_said, nothing): (_, [(&str, &str); 0]) = (("content-encoding", "snappy"), []);
    for (job, fields, is_snappy) in [
        ("1", &nothing[..], true),
        ("2", &[snappy_said][..], true),
        ("3", &[REMOTE_WRITE][..], true),
        ("4", &[REMOTE_WRITE][..], false),
        ("5", &[quoted, snappy_said][..], true),
    ] {
        let intake = start();
        let body = series(b"up", job.as_bytes());
        let body = if is_snappy { snappy(&body) } else { body };
        let told = intake.send("/api/v1/write", fields, &body);
        assert_eq!(told.status, 204, "{job}: {}", told.text());
        let lines = intake.lines();
        assert_eq!((lines.len(), &lines[0]["tags"]["job"]), (1, &json!(job)));
    }
}

/// InfluxDB of either version takes an empty precision for none.
#[test]
fn an_empty_precision_is_none() {
    let intake = start();
    let told = intake.send("/write?db=x&precision=", &[], b"a value=1 1795420800000000000");
    assert_eq!(told.status, 204, "{}", told.text());
    assert_eq!(intake.lines()[0]["timestamp"], "2026-11-23T08:00:00.000Z");
    let told = intake.send("/write?db=x&precision=x", &[], b"a value=1 1");
    assert_eq!((told.status, &told.json()["code"]), (400, &json!("invalid")));
    let told = intake.send("/write?db=x", &[("content-encoding", "deflate")], b"a value=1");
    assert_eq!((told.status, &told.json()["code"]), (415, &json!("unsupported media type")));
}
