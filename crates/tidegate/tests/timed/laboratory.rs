//! Planted causes that need a laboratory around the server: a network of its own (ports, distance), a
//! limit of the client's process, a CPU quota. User namespaces make the networks; only root makes a quota.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::planted::{BINARY, Stub, attempts, ensure, nothing_more, saturate, within};
use serde_json::Value;

/// Runs a shell script in a network of its own, in `folder`; the report that it leaves there.
fn in_own_network(folder: &Path, script: &str, flags: &str) -> Value {
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", script, BINARY])
        .args(flags.split_whitespace())
        .args(["--json", "report.json"])
        .current_dir(folder)
        .output()
        .unwrap();
    let text = fs::read_to_string(folder.join("report.json"));
    serde_json::from_str(&text.unwrap_or_else(|_| panic!("no report: {output:?}"))).unwrap()
}

#[test]
fn the_clients_descriptors_are_named() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let stub = Stub::start("--delay-ms 20");
        let json = folder.path().join("report.json");
        let flags =
            "--levels 16,128 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --processes 1 --force";
        let output = Command::new("prlimit")
            .args(["--nofile=80:80", BINARY, "saturate", &stub.url, "--json", json.to_str().unwrap()])
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        let text = fs::read_to_string(&json).unwrap_or_else(|_| panic!("no report: {output:?}"));
        serde_json::from_str(&text).unwrap()
    };
    attempts("client-descriptors", run, |report| {
        ensure(report["steps"][1]["errors"]["too-many-files"].as_u64() > Some(0), "no EMFILE is told")
    });
}

/// In a network of its own whose port range is a hundred long.
#[test]
fn the_clients_ports_are_named() {
    let script = r#"
        ip link set lo up && echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range || exit 9
        mkfifo ready
        "$0" stub 127.0.0.1:4100 --delay-ms 20 > ready & stub=$!
        read line < ready
        "$0" saturate http://127.0.0.1:4100/ "$@"; code=$?
        kill $stub; exit $code"#;
    let flags = "--levels 16,256 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --force";
    let run = || in_own_network(tempfile::tempdir().unwrap().path(), script, flags);
    attempts("client-ports", run, nothing_more);
}

/// The way to the server takes 50 ms and back, the server nothing: 20 connections are 400 a second.
#[test]
fn the_distance_is_named() {
    let delay = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../regression/round-trip/delay.py");
    let script = r#"
        ip link set lo up && mkfifo said && exec 3<>said
        python3 DELAY 25 >&3 & wire=$!
        read line <&3
        ip address add 10.77.0.1/24 dev wire && ip link set wire up || exit 9
        "$0" stub 10.77.0.1:4100 >&3 & stub=$!
        read line <&3
        "$0" saturate http://10.77.0.2:4100/ "$@"; code=$?
        kill $stub $wire; exit $code"#;
    let script = script.replace("DELAY", delay.to_str().unwrap());
    let flags = "--levels 5,20 --step-seconds 1.5 --warmup-seconds 0.3 --repeats 1";
    let run = || in_own_network(tempfile::tempdir().unwrap().path(), &script, flags);
    attempts("round-trip-floor", run, |report| {
        within("the round trip", &report["cause"]["numbers"]["round_trip_ms"], 50.0, 0.10)?;
        ensure(report["observations"][1]["min_rtt_us"].as_f64() > Some(49_000.0), "TCP_INFO was not read")
    });
}

/// A control group with a CPU quota; its folder goes with it.
struct Group(PathBuf);

impl Group {
    /// So many hundredths of a core, in periods of 100 ms; none where this user may not make groups.
    fn of_hundredths(share: u32) -> Option<Self> {
        let name = format!("tidegate-test-{}-{share}", std::process::id());
        let (first, second) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let quota = share * 1_000;
        let (folder, file, quota) = if first.exists() {
            (first.join(name), "cpu.cfs_quota_us", quota.to_string())
        } else {
            (second.join(name), "cpu.max", format!("{quota} 100000"))
        };
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        fs::write(group.0.join(file), quota).ok().map(|()| group)
    }

    fn add(&self, child: &Child) {
        fs::write(self.0.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

/// What a quota allows is named as the server's CPU, with the quota itself, while the cores idle.
#[test]
fn a_cpu_quota_is_named() {
    a_quota_is_named(10);
}

/// A core at half its speed: neither one hot thread, though one does all the work, nor a pool.
#[test]
fn a_core_at_half_speed_by_quota_is_named() {
    a_quota_is_named(50);
}

fn a_quota_is_named(hundredths: u32) {
    let Some(group) = Group::of_hundredths(hundredths) else {
        assert!(!is_root(), "root makes a group");
        return tidegate_testkit::not_tested("a CPU quota is named", "only root makes a control group");
    };
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        // Real-time tasks have no quota of this kind, so the stub runs as anything else does.
        let mut child = Command::new(BINARY)
            .args(["stub", "127.0.0.1:0", "--burn-ms", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        group.add(&child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let flags = "--levels 1,4,16 --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
        let (_, report) = saturate(folder.path(), &format!("http://{address}/"), flags);
        child.kill().unwrap();
        child.wait().unwrap();
        report
    };
    attempts("server-cpu", run, |report| {
        let quota = f64::from(hundredths) / 100.0;
        within("the quota", &report["cause"]["numbers"]["quota_cores"], quota, 0.01)?;
        ensure(report["cause"]["summary"].as_str().unwrap().contains("quota"), "the quota is not named")
    });
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
