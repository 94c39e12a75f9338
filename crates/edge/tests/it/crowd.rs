//! Ten thousand clients at once, in a process that has descriptors for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Peak, backend, start, until};
use serde_json::json;
use tidegate_edge::stats::Refusal;

/// Makes so many sockets and says so, connects all of them when it is told to, keeps them, and says how many were served and how
/// many were closed. It ends with its input.
const CROWD: &str = r#"
import resource, select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
held = {}
for _ in range(count):
    each = socket.socket()
    each.setblocking(False)
    held[each.fileno()] = each
print("ready", flush=True)
sys.stdin.readline()
for each in held.values():
    each.connect_ex(("127.0.0.1", port))
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

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line
}

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
    let output = |crowd: &mut Child| BufReader::new(crowd.stdout.take().unwrap());
    let mut outputs: Vec<_> = crowds.iter_mut().map(output).collect();
    for output in &mut outputs {
        assert_eq!(line(output), "ready\n");
    }
    for crowd in &mut crowds {
        crowd.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    let mut said = [0, 0];
    for output in &mut outputs {
        for (sum, count) in said.iter_mut().zip(line(output).split_whitespace()) {
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
