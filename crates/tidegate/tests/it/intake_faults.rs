//! The intake in the built binary while its disk, its descriptors, its clients or its receivers fail.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

const PATIENCE: Duration = Duration::from_secs(60);
const ON_FREE_PORTS: [(&str, &str); 1] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];

fn url(service: &Tidegate, path: &str) -> String {
    format!("http://{}{path}", service.intake.unwrap())
}

fn batch(names: impl Iterator<Item = String>) -> String {
    let metrics: Vec<Value> = names.map(|name| json!({"name": name, "value": 1})).collect();
    json!({ "metrics": metrics }).to_string()
}

/// Points of one gauge as OpenTelemetry sends them in JSON.
fn points(count: usize) -> String {
    let point = |number| json!({"asDouble": 1.0, "timeUnixNano": "1795420800000000000", "attributes": [{"key": "host", "value": {"stringValue": format!("host-{number}")}}]});
    let points: Vec<Value> = (0..count).map(point).collect();
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "cpu.usage", "gauge": {"dataPoints": points}}]}]}]}).to_string()
}

/// The status of a batch, and when to come back.
fn post(service: &Tidegate, body: &str) -> (u16, Option<String>) {
    let reply = agent().post(url(service, "/metrics")).send(body).unwrap();
    let after = reply.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (reply.status().as_u16(), after)
}

/// A number on the operator's page.
fn number(service: &Tidegate, series: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse::<f64>().unwrap() as u64
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = monotonic();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

/// The newest 10,000 lines that the intake has, in order.
fn lines(service: &Tidegate) -> Vec<Value> {
    let server = url(service, "");
    let ran = binary().args(["intake", "tail", "--server", &server, "-n", "10000"]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn fault_25_a_full_disk_is_answered_507_and_the_intake_resumes_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mkdir -m 700 -p tidegate-data tidegate-data/intake && \
                  mount -t tmpfs -o size=4m none tidegate-data/intake && exec \"$0\" serve";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tidegate")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let service = Tidegate::spawn(folder, command, &ON_FREE_PORTS);
    // The disk as that process sees it.
    let filler = service.path().join("tidegate-data/intake/filler");
    let filler = PathBuf::from(format!("/proc/{}/root{}", service.pid(), filler.display()));
    let body = batch((0..100).map(|number| format!("metric.{number}")));
    assert_eq!(post(&service, &body), (200, None));
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    let mut kept = 1;
    until("the disk is full", || match post(&service, &body) {
        (200, None) => {
            kept += 1;
            false
        }
        (507, Some(after)) => after.parse::<u64>().unwrap() > 0,
        other => panic!("{other:?}"),
    });
    assert!(number(&service, "tidegate_intake_refused_total{reason=\"disk_full\"}") > 0);
    assert_eq!(number(&service, "tidegate_log_troubled{partition=\"0\"}"), 1);
    // An exporter of OpenTelemetry throws away what is answered 507.
    let exported = agent()
        .post(url(&service, "/v1/metrics"))
        .content_type("application/json")
        .send(points(100))
        .unwrap();
    assert_eq!(exported.status(), 503);
    assert!(exported.headers().contains_key("retry-after"));
    fs::remove_file(&filler).unwrap();
    drop(file);
    until("it takes lines again", || match post(&service, &body).0 {
        200 => true,
        507 => false,
        other => panic!("{other}"),
    });
    assert_eq!(lines(&service).len(), 100 * (kept + 1), "what was answered 200, and nothing else");
    service.signal("TERM");
    let ended = service.wait();
    assert!(
        ended.status.success() && ended.output.contains("the disk takes lines again"),
        "{}",
        ended.output
    );
}

/// Names that were acknowledged, and those of which nobody knows.
#[derive(Default)]
struct Sent {
    acknowledged: HashSet<String>,
    unknown: HashSet<String>,
    refused: usize,
}

impl Sent {
    /// Sends a batch of one metric of this name.
    fn send(&mut self, service: &str, name: String, ack: &str) {
        let to = format!("{service}/metrics?ack={ack}");
        match agent().post(to).send(batch([name.clone()].into_iter())).map(|reply| reply.status().as_u16()) {
            Ok(200) => drop(self.acknowledged.insert(name)),
            Ok(503) => self.refused += 1,
            Ok(other) => panic!("{other}"),
            // The process is gone, or could not say what became of it.
            Err(_) => drop(self.unknown.insert(name)),
        }
    }

    /// What was acknowledged is there, and nothing else is but that of which nobody knows.
    fn check(&self, found: &[Value], case: &str) {
        let found: HashSet<String> =
            found.iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect();
        let lost: Vec<_> = self.acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "{case}: acknowledged and not there: {lost:?}");
        let more =
            found.iter().filter(|name| !self.acknowledged.contains(*name) && !self.unknown.contains(*name));
        assert_eq!(more.count(), 0, "{case}: refused and there");
    }
}

/// By libfiu, which stands between the process and the system's calls.
#[test]
fn fault_27_calls_that_fail_now_and_then_refuse_batches_and_lose_none() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("fiu");
    let mut command = Command::new("fiu-run");
    command.args(["-x", "-f"]).arg(&control).args([env!("CARGO_BIN_EXE_tidegate"), "serve"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let service = Tidegate::spawn(folder, command, &ON_FREE_PORTS);
    let order = |order: &str| {
        let mut command = Command::new("fiu-ctrl");
        command.args(["-c", order, "-f"]).arg(&control).arg(service.pid().to_string());
        assert!(command.status().unwrap().success(), "{order}");
    };
    let points = ["rw/writev", "rw/writev/reduce", "rw/ftruncate", "sync/fdatasync", "sync/fsync"];
    for point in points {
        // 5 is EIO.
        order(&format!("enable_random name=posix/io/{point},probability=0.2,failinfo=5"));
    }
    let (mut sent, to) = (Sent::default(), url(&service, ""));
    let mut number = 0;
    until("batches are taken and refused", || {
        number += 1;
        sent.send(&to, format!("metric.{number}"), ["written", "fsync"][number % 2]);
        sent.acknowledged.len() >= 100 && sent.refused >= 20
    });
    for point in points {
        order(&format!("disable name=posix/io/{point}"));
    }
    until("it takes lines again", || {
        number += 1;
        let refused = sent.refused;
        sent.send(&to, format!("metric.{number}"), "fsync");
        sent.refused == refused
    });
    sent.check(&lines(&service), "while it runs");
    service.signal("KILL");
    let (folder, _) = service.wait_keeping_data();
    let service = Tidegate::start_in(folder, &[], &ON_FREE_PORTS);
    let found: HashSet<String> =
        lines(&service).iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect();
    assert!(sent.acknowledged.is_subset(&found), "after a kill");
}

/// As many kills as this says, instead of those that `make test` has time for.
const KILLS: &str = "TIDEGATE_TEST_KILLS";
const DEFAULT_KILLS: u64 = 10;
const SENDERS: usize = 4;

#[test]
fn fault_26_the_process_is_killed_under_its_senders_and_nothing_acknowledged_is_lost() {
    let kills = std::env::var(KILLS).map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap());
    let mut folder = tempfile::tempdir().unwrap();
    for life in 0..kills {
        let service = Tidegate::start_in(folder, &[], &ON_FREE_PORTS);
        let (to, answered) = (url(&service, ""), AtomicU64::new(0));
        // Some are killed at once, some after hundreds of batches; always between any two steps of the four senders.
        let kill_after = life * life * 37 % 401;
        let sent: Vec<Sent> = std::thread::scope(|scope| {
            let sender = |sender: usize| {
                let (to, answered) = (&to, &answered);
                scope.spawn(move || {
                    let mut sent = Sent::default();
                    for number in 0.. {
                        let name = format!("life{life}.sender{sender}.{number}");
                        sent.send(to, name, ["fsync", "written"][sender % 2]);
                        answered.fetch_add(1, Ordering::Relaxed);
                        if !sent.unknown.is_empty() {
                            break;
                        }
                    }
                    sent
                })
            };
            let senders: Vec<_> = (0..SENDERS).map(sender).collect();
            until("batches are answered", || answered.load(Ordering::Relaxed) >= kill_after);
            service.signal("KILL");
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        (folder, _) = service.wait_keeping_data();
        let service = Tidegate::start_in(folder, &[], &ON_FREE_PORTS);
        let mut found = lines(&service);
        found.retain(|line| line["name"].as_str().unwrap().starts_with(&format!("life{life}.")));
        let mut all = Sent::default();
        for sent in sent {
            all.acknowledged.extend(sent.acknowledged);
            all.unknown.extend(sent.unknown);
        }
        all.check(&found, &format!("life {life}, killed after {kill_after}"));
        service.signal("KILL");
        (folder, _) = service.wait_keeping_data();
    }
}

#[test]
fn fault_35_an_intake_whose_connections_are_all_taken_serves_those_who_waited() {
    const CLIENTS: usize = 30;
    let bounds = [("TIDEGATE_LIMITS_CONNECTIONS", "20"), ("TIDEGATE_LIMITS_HEADER_DEADLINE", "60s")];
    let service = Tidegate::start(&[], &bounds);
    let address = service.intake.unwrap();
    let held: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let paused = "tidegate_accept_pauses_total{server=\"intake\"}";
    until("no more are accepted", || number(&service, paused) > 0);
    let (asked, served) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (asked, served) = (&asked, &served);
            scope.spawn(move || {
                let body = batch([format!("client.{client}")].into_iter());
                let mut stream = TcpStream::connect(address).unwrap();
                let length = body.len();
                write!(stream, "POST /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
                    .unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
                let mut reply = String::new();
                stream.read_to_string(&mut reply).unwrap();
                assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
                served.fetch_add(1, Ordering::Relaxed);
            });
        }
        until("all have asked", || asked.load(Ordering::Relaxed) == CLIENTS as u64);
        assert_eq!(served.load(Ordering::Relaxed), 0, "nobody is served above the bound");
        drop(held);
    });
    assert_eq!(served.load(Ordering::Relaxed), CLIENTS as u64);
    assert_eq!(lines(&service).len(), CLIENTS);
}

#[test]
fn fault_36_an_intake_without_descriptors_goes_on_when_it_has_some() {
    let service = Tidegate::start(&[], &[]);
    let body = batch(["a".to_owned()].into_iter());
    assert_eq!(post(&service, &body).0, 200);
    let open = fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count();
    let limit = |limit: usize| {
        let pid = service.pid().to_string();
        let set =
            Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={limit}:")]).status().unwrap();
        assert!(set.success());
    };
    limit(open + 20);
    let held: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(service.intake.unwrap()).unwrap()).collect();
    // The operator's page needs a descriptor, too, so that it waits as others do.
    drop(held);
    until("it answers again", || post(&service, &body).0 == 200);
    limit(1_024);
    let failed = "tidegate_accept_errors_total{server=\"intake\",cause=\"resources\"}";
    assert!(number(&service, failed) > 0, "it ran out");
    assert_eq!(post(&service, &body).0, 200);
}

/// Clients that stop in the middle of a body.
const SLOW: usize = 5_000;
/// Memory that the process may take with them: what a connection may always have, which `limits.buffered_bytes` says.
const SLOW_BYTES: u64 = SLOW as u64 * (64 << 10);

#[test]
fn fault_31_thousands_of_slow_clients_take_little_and_keep_nobody_from_sending() {
    let service = Tidegate::start(&[], &[]);
    let body = batch(["a".to_owned()].into_iter());
    assert_eq!(post(&service, &body).0, 200);
    let resident = || number(&service, "process_resident_memory_bytes");
    let before = resident();
    let begin = b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n{\"metrics\":[";
    let slow: Vec<TcpStream> = (0..SLOW)
        .map(|_| {
            let mut stream = TcpStream::connect(service.intake.unwrap()).unwrap();
            stream.write_all(begin).unwrap();
            stream
        })
        .collect();
    let accepted = "tidegate_connections_accepted_total{server=\"intake\"}";
    until("they are accepted", || number(&service, accepted) as usize >= SLOW);
    for _ in 0..20 {
        assert_eq!(post(&service, &body).0, 200, "a good client is served");
    }
    let taken = resident().saturating_sub(before);
    assert!(taken < SLOW_BYTES, "{taken} bytes for {SLOW} slow clients");
    let open = "tidegate_connections_open{server=\"intake\"}";
    until("they are closed by the deadline for bodies", || (number(&service, open) as usize) < SLOW / 10);
    drop(slow);
    assert_eq!(lines(&service).len(), 21);
}

/// Reads a request; its body.
fn read_request(stream: &TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    body
}

#[test]
fn fault_70_a_forwarder_killed_between_sending_and_committing_delivers_every_line() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "[[intake.forward]]\nname = 'other'\nto = 'otlp'\nurl = 'http://{}/v1/metrics'\n",
        receiver.local_addr().unwrap()
    );
    let mut folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    let mut sent = HashSet::new();
    let mut came: HashSet<String> = HashSet::new();
    let find = |body: &[u8], sent: &HashSet<String>| -> Vec<String> {
        let text = String::from_utf8_lossy(body).into_owned();
        sent.iter().filter(|name| text.contains(*name)).cloned().collect()
    };
    for life in 0..4 {
        let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS);
        let names: Vec<String> = (0..50).map(|number| format!("life{life}.metric{number:03}")).collect();
        assert_eq!(post(&service, &batch(names.iter().cloned())).0, 200);
        sent.extend(names);
        // It has the request, and dies before it is told so.
        let (stream, _) = receiver.accept().unwrap();
        drop(read_request(&stream));
        service.signal("KILL");
        (folder, _) = service.wait_keeping_data();
    }
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS);
    let (mut stream, _) = receiver.accept().unwrap();
    while came.len() < sent.len() {
        came.extend(find(&read_request(&stream), &sent));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
    let committed = service.path().join("tidegate-data/intake/groups/forward.other.json");
    until("it is committed", || {
        fs::read_to_string(&committed).is_ok_and(|text| text.contains(&format!(":{}", sent.len())))
    });
    assert_eq!(number(&service, "tidegate_intake_forward_waiting_lines{forward=\"other\"}"), 0);
}
