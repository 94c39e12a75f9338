//! Points of the line protocol: what becomes of good, bad and hostile ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(text: &[u8]) -> (Vec<Value>, PointCounts) {
    let mut writer = LineWriter::new("c", 0, usize::MAX);
    let counts = read_points(text, Precision::Nanoseconds, &mut writer).unwrap();
    let lines = String::from_utf8(writer.finish().bytes).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), counts)
}

fn error(line: &str) -> String {
    let (lines, counts) = read(format!("a b=1\n{line}\n").as_bytes());
    assert_eq!((lines.len(), counts.rejected, counts.fields), (1, 1, 1), "{line}");
    let (place, error) = counts.error.unwrap();
    assert_eq!(place, 2);
    error.to_string()
}

#[test]
fn fields_become_lines() {
    let (lines, counts) = read(
        b"# a comment\n\ncpu,host=a\\ b,re\\,g=\\x usage=81.5,idle=18i,up=true,name=\"x \\\" y\",n=3u 1795420800000000000\r\nload value=-.5e1\n",
    );
    assert_eq!(counts, PointCounts { fields: 5, texts: 1, ..PointCounts::default() });
    let tags = json!({"host": "a b", "re,g": "\\x"});
    let expected = [
        ("cpu.usage", 81.5, &tags),
        ("cpu.idle", 18.0, &tags),
        ("cpu.up", 1.0, &tags),
        ("cpu.n", 3.0, &tags),
        ("load", -5.0, &json!({})),
    ];
    for (line, (name, value, tags)) in lines.iter().zip(expected) {
        assert_eq!((&line["name"], &line["value"], &line["tags"]), (&json!(name), &json!(value), tags));
    }
    assert_eq!(lines[0]["timestamp"], "2026-11-23T08:00:00.000Z");
    assert_eq!(lines[4]["timestamp"], "1970-01-01T00:00:00.000Z");
}

#[test]
fn integers_of_64_bits_keep_their_digits() {
    let (lines, _) = read(b"net rx=9007199254740993i,tx=18446744073709551615u,f=9007199254740993");
    assert_eq!(lines[0]["value"], json!(9_007_199_254_740_993_u64));
    assert_eq!(lines[1]["value"], json!(u64::MAX));
    assert_eq!(lines[2]["value"], json!(9_007_199_254_740_992.0), "a float by its type");
}

#[test]
fn timestamps_have_the_unit_that_the_request_names() {
    for (word, millis) in [
        ("ns", 0),
        ("n", 0),
        ("us", 1),
        ("u", 1),
        ("ms", 1_795),
        ("s", 1_795_000),
        ("m", 107_700_000),
        ("h", 6_462_000_000),
    ] {
        assert_eq!(Precision::of_word(word).unwrap().millis(1_795), millis, "{word}");
    }
    assert_eq!(Precision::of_word("d"), None);
    assert_eq!(Precision::Nanoseconds.millis(-1), -1);
}

#[test]
fn a_bad_line_is_left_out_whole_and_named() {
    for (line, expected) in [
        (",host=a b=1", "the measurement is missing"),
        ("cpu", "a field is missing: measurement,tag=value field=1 timestamp"),
        ("cpu ", "a field is missing: measurement,tag=value field=1 timestamp"),
        ("cpu,host b=1", "a tag has no value"),
        ("cpu b", "a field is missing: measurement,tag=value field=1 timestamp"),
        ("cpu b=", "a field's value is no number, boolean or text"),
        ("cpu b=NaN", "a field's value is no number, boolean or text"),
        ("cpu b=1x", "a field's value is no number, boolean or text"),
        ("cpu b=1.5i", "a field's value is no number, boolean or text"),
        ("cpu b=1e400", "the value is not finite"),
        ("cpu c=2,b=\"text", "a text has no end"),
        ("cpu c=2,b=\"text\"x", "there is something behind a text"),
        ("cpu c=2,=1", "a field has no name"),
        ("cpu b=1 1.5", "the timestamp is no integer"),
        ("cpu b=1 1 1", "the timestamp is no integer"),
        ("cpu,a=1,a=2 b=1", "a tag is given twice"),
    ] {
        assert_eq!(error(line), expected, "{line}");
    }
    let (_, counts) = read(b"cpu\xff b=1");
    assert_eq!(counts.error, Some((1, PointError::NotText)));
}

#[test]
fn a_line_feed_in_a_text_ends_no_line() {
    let (lines, counts) = read(b"log msg=\"a\ncpu,host=victim value=1e9\nb\",n=1i\nload value=2\n");
    let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!((names, counts.texts, counts.rejected), (vec!["log.n", "load"], 1, 0));
    // Where it is no text, a quote is a character: of a comment, a measurement, a tag.
    let (lines, counts) = read(b"# a \"comment\na\"b,t=\"x value=1\nload value=2");
    assert_eq!((lines.len(), counts.rejected), (2, 0), "{lines:?}");
    let (lines, counts) = read(b"a b=\"x\ny\"\n\nc\nload value=2");
    assert_eq!((lines.len(), counts.error.unwrap().0), (1, 4), "line feeds are counted");
    let (lines, counts) = read(b"a,t=x\\\ncpu,host=victim value=1\nload value=2");
    assert_eq!(lines.last().unwrap()["name"], "load");
    assert!(lines.iter().all(|line| line["name"] != "cpu"), "{lines:?} {counts:?}");
}

proptest! {
    #[test]
    fn no_text_makes_a_point_of_another_name(text in "[a-z,=\n \"\\\\]{0,40}") {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        let (lines, counts) = read(format!("log msg=\"{escaped}\",n=1i\nload value=2").as_bytes());
        let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
        prop_assert_eq!((names, counts.texts, counts.rejected), (vec!["log.n", "load"], 1, 0));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0_usize..40) {
        let mut body = b"cpu,host=a\\ b usage=81.5,name=\"x \\\" y\" 1795".to_vec();
        body.splice(at..(at + 2).min(body.len()), bytes.iter().copied());
        for body in [&body, &bytes] {
            let (lines, counts) = read(body);
            prop_assert_eq!(lines.len(), counts.fields);
        }
    }

    #[test]
    fn a_number_is_kept_to_the_last_digit(value in any::<f64>().prop_filter("refused", |value| value.is_finite())) {
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        read_points(format!("a value={value:?}").as_bytes(), Precision::Nanoseconds, &mut writer).unwrap();
        let line = String::from_utf8(writer.finish().bytes).unwrap();
        let digits = line.split_once("\"value\":").unwrap().1.split_once(',').unwrap().0;
        prop_assert_eq!(digits.parse::<f64>().unwrap(), value);
    }
}
