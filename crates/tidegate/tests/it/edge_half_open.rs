//! Fault 38 with peers that really are no more to be reached: their network is gone, and no packet tells of it.

use std::fs;

use crate::support::severed::run;

/// Holds connections: one side that says nothing, or goes on saying something that nobody acknowledges.
const HOLD: &str = r#"
import socket, sys, threading, time
def say(stream):
    try:
        while True:
            stream.sendall(b"x" * 100)
            time.sleep(0.1)
    except OSError:
        pass
def hear(stream):
    try:
        while stream.recv(4096):
            pass
    except OSError:
        pass
way, host, port, *words = sys.argv[1:]
if way == "listen":
    server = socket.create_server((host, int(port)))
    print("listens", flush=True)
    while True:
        stream = server.accept()[0]
        if stream.recv(1) == b"s":
            threading.Thread(target=say, args=(stream,), daemon=True).start()
        threading.Thread(target=hear, args=(stream,), daemon=True).start()
held = []
for word in words:
    stream = socket.create_connection((host, int(port)), 60)
    stream.settimeout(None)
    # Has the server say something all the time; or does so itself; or nobody does.
    stream.sendall({"server": b"s", "client": b"c", "nobody": b"n"}[word])
    if word == "client":
        threading.Thread(target=say, args=(stream,), daemon=True).start()
    threading.Thread(target=hear, args=(stream,), daemon=True).start()
    held.append(stream)
time.sleep(600)
"#;

/// Pulls the cable between the two networks.
const SCRIPT: &str = r#"
python3 hold.py listen 127.0.0.1 3000 > near.log & started=$!
in_far python3 hold.py listen 10.77.0.2 3000 > far.log & started="$started $!"
until grep -q listens near.log && grep -q listens far.log; do :; done
"$0" serve --config edge.toml --http-listen 127.0.0.1:4000 > edge.log 2>&1 & started="$started $!"
until curl --silent --fail http://127.0.0.1:4000/readyz > ready; do :; done
in_far python3 hold.py connect 10.77.0.1 8080 nobody server & started="$started $!"
python3 hold.py connect 127.0.0.1 8081 nobody client & started="$started $!"
open() { curl --silent http://127.0.0.1:4000/metrics | sed -n 's/^tidegate_edge_open{listener="[^"]*"} //p' | tr '\n' ' '; }
until [ "$(open)" = "2 2 " ]; do sleep 0.1; done
in_far ip link set far down
began=$(cut -d. -f1 /proc/uptime)
after=$(open)
until [ "$(open)" = "0 0 " ] || [ $(($(cut -d. -f1 /proc/uptime) - began)) -ge 90 ]; do sleep 0.2; done
echo "$after: $(open) after $(($(cut -d. -f1 /proc/uptime) - began)) s"
kill $started $far
"#;

const FILE: &str = r#"
edge.api_listen = "off"
edge.listener = [{ listen = "10.77.0.1:8080", app = "near" }, { listen = "127.0.0.1:8081", app = "far" }]
edge.backend = [
  { name = "near", app = "near", address = "127.0.0.1:3000", check = { kind = "off" } },
  { name = "far", app = "far", address = "10.77.0.2:3000", check = { kind = "off" } },
]
"#;

/// Quiet ones are found out by probes, and those that are owed bytes by what is not acknowledged.
#[test]
fn fault_38_clients_and_backends_whose_network_is_gone_are_let_go_within_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hold.py"), HOLD).unwrap();
    fs::write(folder.path().join("edge.toml"), FILE).unwrap();
    let output = run(folder.path(), SCRIPT);
    let said = String::from_utf8_lossy(&output.stdout);
    let log = fs::read_to_string(folder.path().join("edge.log")).unwrap_or_default();
    let seconds = said.trim().strip_prefix("2 2 : 0 0  after ").and_then(|rest| rest.strip_suffix(" s"));
    let seconds: u64 = seconds.unwrap_or_else(|| panic!("{said} {output:?} {log}")).parse().unwrap();
    assert!((10..=60).contains(&seconds), "{said}");
}
