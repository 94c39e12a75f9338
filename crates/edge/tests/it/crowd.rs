//! Ten thousand clients at once, in a process that has descriptors for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Peak, backend, start, until};
use serde_json::json;
use tidegate_edge::stats::Refusal;

/// Opens so many connections at once, keeps all of them, and says how many were served and how many were closed. It ends
/// with its input.
const CROWD: &str = r#"
import resource, select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
held = {}
for _ in range(count):
    each = socket.socket()
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", port))
    held[each.fileno()] = each
poll, said = select.poll(), {True: 0, False: 0}
for each in held:
    poll.register(each, select.POLLIN)
while sum(said.values()) < count:
    ready = poll.poll(60_000)
    assert ready, f"nothing for a minute: {said}"
    for each, _ in ready:
        poll.unregister(each)
        try:
            served = held[each].recv(2) == b"in"
        except OSError:
            served = False
        said[served] += 1
print(said[True], said[False], flush=True)
sys.stdin.read()
"#;

#[test]
fn fault_67_ten_thousand_connections_at_once_never_pass_a_limit() {
    const CLIENTS: usize = 10_000;
    const PROCESSES: usize = 4;
    const LIMIT: usize = 100;
    let peak = Arc::new(Peak::default());
    let counting = backend({
        let peak = peak.clone();
        move |mut stream| {
            peak.enter();
            drop(stream.write_all(b"in"));
            drop(stream.read_to_end(&mut Vec::new()));
            peak.leave();
        }
    });
    let document = json!({
        "name": "one", "address": counting.to_string(), "soft_limit": 10, "hard_limit": LIMIT, "check": {"kind": "off"},
    });
    let running = start(json!({"connect_seconds": 60}), &[document], &[]);
    let port = running.address.port().to_string();
    let crowd = || {
        let mut command = Command::new("python3");
        command.args(["-c", CROWD, &port, &(CLIENTS / PROCESSES).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut crowds: Vec<Child> = (0..PROCESSES).map(|_| crowd()).collect();
    let mut said = [0, 0];
    for crowd in &mut crowds {
        let mut line = String::new();
        BufReader::new(crowd.stdout.take().unwrap()).read_line(&mut line).unwrap();
        for (sum, count) in said.iter_mut().zip(line.split_whitespace()) {
            *sum += count.parse::<usize>().unwrap();
        }
    }
    // Every connection is still open at its client: whoever has a place has kept it.
    assert_eq!(said, [LIMIT, CLIENTS - LIMIT], "served and closed");
    let stats = running.listener.stats();
    let (placed, full) = (stats.placed.load(Relaxed), stats.refused[Refusal::Full as usize].load(Relaxed));
    assert_eq!((placed, full), (LIMIT as u64, (CLIENTS - LIMIT) as u64));
    assert_eq!((peak.most(), running.edge.backends()[0].open), (LIMIT, LIMIT as u32));
    for mut crowd in crowds {
        drop(crowd.stdin.take());
        assert!(crowd.wait().unwrap().success());
    }
    until("every place is given back", || running.edge.backends()[0].open == 0);
}
