//! Fault 38 at the gateway: a server whose network is gone, without a packet that tells of it, while connections to it are
//! kept and requests are under way. No timeout of the configuration ends these here.

use std::fs;

use crate::support::severed::run;

/// A server that names itself, and is asked for what never ends.
const SERVER: &str = r#"
import socket, sys, threading, time
name, host = sys.argv[1:]
def serve(stream):
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            more = stream.recv(4096)
            if not more:
                return
            got += more
        head, got = got.split(b"\r\n\r\n", 1)
        path = head.split(b" ")[1]
        print(path.decode(), flush=True)
        if path == b"/body":
            stream.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        if path == b"/upgrade":
            stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        if path in (b"/head", b"/body", b"/upload", b"/upgrade"):
            while stream.recv(4096):
                pass
            return
        if path.endswith(b"/kept"):
            # So that several are under way at a time, each on a connection of its own.
            time.sleep(0.5)
        stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(name), name.encode()))
server = socket.create_server((host, 3000), backlog=128)
print("listens", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

/// Clients of the gateway, and what becomes of each; the cable is pulled when all of them are served.
const CLIENTS: &str = r#"
import socket, subprocess, sys, threading, time
FIELDS = {"/upload": "content-length: 100000000\r\n", "/upgrade": "connection: upgrade\r\nupgrade: websocket\r\n"}
def ask(path):
    stream = socket.create_connection(("127.0.0.1", 8080), 60)
    stream.settimeout(None)
    method = "POST" if path == "/upload" else "GET"
    stream.sendall(f"{method} {path} HTTP/1.1\r\nhost: a\r\n{FIELDS.get(path, '')}\r\n".encode())
    return stream
def status(stream):
    try:
        return stream.recv(4096).split(b" ")[1].decode()
    except (OSError, IndexError):
        return "cut"
def rest(stream):
    try:
        while stream.recv(4096):
            pass
    except OSError:
        pass
    return "cut"
def upload(stream):
    try:
        while True:
            stream.sendall(b"x" * 1000)
            time.sleep(0.1)
    except OSError:
        pass
def connections():
    ss = ["ss", "--no-header", "--tcp", "--numeric", "state", "established", "dst", "10.77.0.2:3000"]
    return len(subprocess.run(ss, stdout=subprocess.PIPE, check=True).stdout.splitlines())
kept = [ask(path) for path in ["/kept", "/either/kept"] * 20]
said = [status(stream) for stream in kept]
paths = ["/head", "/body", "/upload", "/upgrade"]
under_way = {path: ask(path) for path in paths}
threading.Thread(target=upload, args=(under_way["/upload"],), daemon=True).start()
while any(path not in open("far.log").read() for path in paths):
    time.sleep(0.1)
said += [status(under_way["/body"]), status(under_way["/upgrade"])]
print("before:", *sorted(set(said)), connections() >= 8)
subprocess.run(sys.argv[1:], check=True)
began, ends = time.monotonic(), {}
def note(name, how):
    ends[name] = how()
    # One write for the whole line: other threads print, too.
    print(f"{name} {ends[name]}\n", end="", flush=True)
waiting = [threading.Thread(target=note, args=(path, lambda path=path: (status if path in ("/head", "/upload") else rest)(under_way[path]))) for path in paths]
# Some of these are sent on kept connections to the server that is gone.
waiting += [threading.Thread(target=note, args=(f"either{number}", lambda: status(ask("/either")))) for number in range(8)]
for thread in waiting:
    thread.start()
for thread in waiting:
    thread.join()
while connections():
    time.sleep(0.1)
print("after", int(time.monotonic() - began), "s", flush=True)
"#;

/// Has the clients pull the cable between the two networks.
const SCRIPT: &str = r#"
python3 server.py near 127.0.0.1 > near.log & started=$!
in_far python3 server.py far 10.77.0.2 > far.log & started="$started $!"
until grep -q listens near.log && grep -q listens far.log; do :; done
"$0" serve --config gateway.toml --http-listen 127.0.0.1:4000 > gateway.log 2>&1 & started="$started $!"
until curl --silent --fail http://127.0.0.1:4000/readyz > ready; do :; done
python3 clients.py nsenter --net=/proc/$far/ns/net ip link set far down
kill $started $far
"#;

/// Nothing is given up by a time of the configuration, and no server is left out by what failed there.
const FILE: &str = r#"
gateway.listener = [{ listen = "127.0.0.1:8080" }]
[[upstream]]
name = "far"
servers = ["10.77.0.2:3000"]
idle_timeout_seconds = 3600
eject_after = 0
breaker = { enabled = false }
[[upstream]]
name = "both"
servers = ["10.77.0.2:3000", "127.0.0.1:3000"]
idle_timeout_seconds = 3600
eject_after = 0
breaker = { enabled = false }
[[route]]
name = "far"
upstream = "far"
first_byte_timeout_seconds = 3600
idle_timeout_seconds = 3600
[[route]]
name = "both"
path = "/either/*"
upstream = "both"
first_byte_timeout_seconds = 3600
idle_timeout_seconds = 3600
"#;

/// Those that wait for a reply are told, or asked elsewhere where that is safe; what was under way ends; and no connection
/// to that server is left.
#[test]
fn fault_38_requests_and_kept_connections_of_a_server_whose_network_is_gone_end_within_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("server.py", SERVER), ("clients.py", CLIENTS), ("gateway.toml", FILE)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let output = run(folder.path(), SCRIPT);
    let said = String::from_utf8_lossy(&output.stdout);
    let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap_or_default();
    println!("{said}");
    for line in ["before: 101 200 True", "/head 502", "/upload 502", "/body cut", "/upgrade cut"] {
        assert!(said.lines().any(|said| said == line), "{line}: {said} {output:?} {log}");
    }
    let answered = said.lines().filter(|line| line.starts_with("either") && line.ends_with(" 200")).count();
    assert_eq!(answered, 8, "{said}");
    let seconds = said.lines().find_map(|line| line.strip_prefix("after ")?.strip_suffix(" s"));
    let seconds: u64 = seconds.unwrap_or_else(|| panic!("{said} {output:?} {log}")).parse().unwrap();
    assert!((10..=60).contains(&seconds), "{said}");
}
