//! Reading lines back: by offset, in groups, waiting, as events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use crate::support::{Answer, Setup, TestIntake, batch, start};

fn count(answer: &Answer) -> usize {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().count()
}

fn next(answer: &Answer) -> u64 {
    answer.field("tidegate-next-offset").unwrap().parse().unwrap()
}

fn read(intake: &TestIntake, query: &str) -> Answer {
    intake.get(&format!("/v1/intake/read?{query}"), &[])
}

#[test]
fn lines_are_read_from_an_offset_on() {
    let intake = start();
    intake.post("/metrics", &batch(30));
    let all = read(&intake, "from=oldest");
    assert_eq!((count(&all), next(&all), all.field("tidegate-first-offset")), (30, 30, Some("0")));
    assert_eq!(all.field("content-type"), Some("application/x-ndjson"));
    let some = read(&intake, "from=10&max=5");
    assert_eq!((count(&some), next(&some)), (5, 15));
    assert!(some.text().contains("metric.10\"") && some.text().contains("metric.14\""), "{}", some.text());
    assert_eq!(count(&read(&intake, "from=newest")), 0);
    for (query, status) in [
        ("from=31", 416),
        ("partition=1", 404),
        ("from=last", 400),
        ("max=0", 400),
        ("max=10001", 400),
        ("wait=61", 400),
        ("form=1", 400),
        ("offset=5", 400),
        ("group=", 400),
        ("group=../../etc", 400),
        ("group=../../etc&from=oldest", 400),
    ] {
        assert_eq!(read(&intake, query).status, status, "{query}");
    }
}

#[test]
fn fault_70_a_reader_that_did_not_commit_reads_its_lines_again() {
    let intake = start();
    intake.post("/metrics", &batch(30));
    let first = read(&intake, "group=billing&max=10");
    assert_eq!((count(&first), next(&first)), (10, 10));
    // It dies here.
    assert_eq!(read(&intake, "group=billing&max=10").body, first.body);
    let commit =
        |offset: u64| intake.send(&format!("/v1/intake/commit?group=billing&offset={offset}"), &[], b"");
    assert_eq!(commit(next(&first)).status, 204);
    let second = read(&intake, "group=billing&max=100");
    assert_eq!((count(&second), second.field("tidegate-first-offset")), (20, Some("10")));
    assert_eq!(count(&read(&intake, "group=other")), 30, "groups do not know of each other");
    assert_eq!(commit(31).status, 416);
    assert_eq!(intake.send("/v1/intake/commit?group=..&offset=0", &[], b"").status, 400);
    for query in ["group=billing", "group=billing&offset=1&from=1", "group=billing&offset=1&max=1"] {
        let refused = intake.send(&format!("/v1/intake/commit?{query}"), &[], b"");
        assert_eq!(refused.status, 400, "{query}");
    }

    let folder = Arc::clone(&intake.folder);
    drop(intake);
    let again = TestIntake::start_in(folder, Setup::default());
    assert_eq!(count(&read(&again, "group=billing")), 20, "a commit outlives the process");
}

#[test]
fn a_reader_waits_for_lines_to_come() {
    let intake = start();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&intake, "from=0&wait=60"));
        intake.post("/metrics", &batch(3));
        assert!(count(&waiting.join().unwrap()) > 0);
    });
}

#[test]
fn events_come_as_lines_are_kept_and_go_on_from_the_last_one_seen() {
    let intake = start();
    intake.post("/metrics", &batch(2));
    let stream = |fields: &str| {
        let mut stream = intake.connect();
        let head = format!(
            "GET /v1/intake/read?from=oldest HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n{fields}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let until = |reader: &mut BufReader<_>, part: &str| {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "{part} does not come");
        }
        line
    };
    let mut first = stream("");
    until(&mut first, "content-type: text/event-stream");
    until(&mut first, "id: 1");
    assert!(until(&mut first, "data: ").contains("metric.0"));
    until(&mut first, "id: 2");
    intake.post("/metrics", &batch(1));
    until(&mut first, "id: 3");
    let mut second = stream("last-event-id: 2\r\n");
    assert_eq!(until(&mut second, "id: "), "id: 3\n");
}

/// A stream of events from the oldest line on.
fn events(intake: &TestIntake) -> BufReader<TcpStream> {
    let mut stream = intake.connect();
    let head =
        b"GET /v1/intake/read?from=oldest HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(head).unwrap();
    BufReader::new(stream)
}

/// The next line that begins so.
fn next_with(reader: &mut BufReader<TcpStream>, start: &str) -> String {
    let mut line = String::new();
    while !line.starts_with(start) {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{start} does not come");
    }
    line.trim_end().to_owned()
}

/// Three segments of ten lines each, of which `harm` is done to the files of the second one while nothing runs.
fn with_harm(harm: impl Fn(&Path)) -> TestIntake {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let plain = || Setup { log: Box::new(|settings| settings.compress = false), ..Setup::default() };
    for _ in 0..3 {
        let intake = TestIntake::start_in(Arc::clone(&folder), plain());
        assert_eq!(intake.post("/metrics", &batch(10)).status, 200);
    }
    for entry in std::fs::read_dir(folder.path().join("0")).unwrap() {
        let file = entry.unwrap().path();
        if file.file_name().unwrap().to_str().unwrap().starts_with(&format!("{:020}", 10)) {
            harm(&file);
        }
    }
    TestIntake::start_in(folder, plain())
}

fn remove(file: &Path) {
    std::fs::remove_file(file).unwrap();
}

fn change_a_bit(file: &Path) {
    if file.extension().is_some_and(|ending| ending == "jsonl") {
        let mut content = std::fs::read(file).unwrap();
        content[100] ^= 1;
        std::fs::write(file, content).unwrap();
    }
}

#[test]
fn fault_72_a_stream_says_which_lines_are_lost_or_damaged_and_goes_on_behind_them() {
    for (harm, damaged) in [(remove as fn(&Path), 0), (change_a_bit, 1)] {
        let intake = with_harm(harm);
        let mut stream = events(&intake);
        assert_eq!(next_with(&mut stream, "event: "), "event: missing");
        assert_eq!(next_with(&mut stream, "data: "), "data: 10-20");
        assert_eq!(next_with(&mut stream, "id: "), "id: 21");
        assert_eq!(intake.post("/metrics", &batch(1)).status, 200);
        while next_with(&mut stream, "id: ") != "id: 31" {}
        let found = intake.intake.log().statistics().partitions[0].damaged_blocks;
        assert_eq!(found, damaged, "a block is looked at once");
    }
}

#[test]
fn fault_72_a_reader_that_waits_is_told_which_lines_are_missing() {
    let intake = with_harm(remove);
    for wait in [0, 60] {
        let told = read(&intake, &format!("from=10&wait={wait}"));
        assert_eq!((count(&told), next(&told), told.field("tidegate-missing")), (0, 20, Some("10-20")));
    }
    let rest = read(&intake, "from=20&wait=60");
    assert_eq!((count(&rest), next(&rest), rest.field("tidegate-missing")), (10, 30, None));
}

#[test]
fn streams_end_with_the_process() {
    let intake = start();
    let mut stream = intake.connect();
    stream
        .write_all(b"GET /v1/intake/read HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("text/event-stream") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    assert_eq!(intake.drain().aborted, 0);
}

#[test]
fn fault_51_a_name_that_was_bound_to_this_machine_reads_nothing() {
    let intake = start();
    let reply =
        intake.exchange(b"GET /v1/intake/read HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 403 "), "{reply}");
}
