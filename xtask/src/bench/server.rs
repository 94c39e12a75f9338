//! The servers that are measured: each a child process on a free loopback port, in a scratch folder
//! that goes when it goes.
//!
//! Every server gets what is customary for it (nginx without access log and with unlimited
//! keep-alive, throttlecrab and Redis with their own defaults but for logs and snapshots), so that
//! none is measured at a fault of its configuration. Stopping is by SIGTERM, for nginx's master would
//! leave its workers behind otherwise.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::case::Subject;
use crate::chore::{capture, find};

/// How often, and how many times, a starting or stopping server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: u32 = 1_000;
/// Kernel ticks per second in `/proc/<pid>/stat`; the same on every Linux we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Replies as long as Tidegate's own.
const REPLY: &str = r#"{"allowed":true,"remaining":99}"#;

/// A running server; stopped when dropped.
pub(crate) struct BenchServer {
    /// Which one.
    pub(crate) subject: Subject,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What a load generator needs besides the address: the script's digest for Redis.
    pub(crate) script: String,
    child: Child,
    _scratch: Scratch,
}

/// What a server is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchProtocol {
    /// HTTP/1.1
    Http,
    /// That of Redis.
    Resp,
    /// gRPC, or HTTP/2 where a server has no gRPC.
    Grpc,
}

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary folder harms nobody.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl BenchServer {
    /// Starts a subject and waits until it accepts connections.
    ///
    /// # Errors
    /// When it is not installed, does not start, or does not listen within 20 s.
    pub(crate) fn start(root: &Path, subject: Subject, config: Option<&Path>) -> anyhow::Result<Self> {
        Self::start_speaking(root, subject, config, BenchProtocol::Http, &[])
    }

    /// The same on the subject's listener for `protocol`, with further environment.
    ///
    /// # Errors
    /// As [`BenchServer::start`].
    pub(crate) fn start_speaking(
        root: &Path,
        subject: Subject,
        config: Option<&Path>,
        protocol: BenchProtocol,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let folder = scratch_folder(port)?;
        let mut command = match subject {
            Subject::Tidegate => tidegate(root, &folder, port, config, protocol)?,
            Subject::Nginx => nginx(&folder, port, protocol)?,
            Subject::Throttlecrab => throttlecrab(root, port, protocol),
            Subject::RedisLua | Subject::RedisGet => redis(&folder, port)?,
        };
        command.envs(environment.iter().copied());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self::launch(subject, folder, command, address, address)?;
        if subject == Subject::RedisLua {
            server.script = load_script(root, port)?;
        }
        Ok(server)
    }

    /// Starts a command in `folder`, which goes with it, and waits until something accepts at `ready` and at `address`. Of
    /// processes that share the port of `address`, `ready` is a listener of this one alone.
    ///
    /// # Errors
    /// When it does not start, or does not listen within 20 s.
    pub(crate) fn launch(
        subject: Subject,
        folder: PathBuf,
        mut command: Command,
        address: SocketAddr,
        ready: SocketAddr,
    ) -> anyhow::Result<Self> {
        let log = std::fs::File::create(folder.join("log.txt")).context("log.txt")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&folder);
        let child = command.spawn().with_context(|| format!("{} does not start", subject.name()))?;
        let mut server = Self { subject, address, script: String::new(), child, _scratch: Scratch(folder) };
        server.wait_until_it_listens(ready)?;
        server.wait_until_it_listens(address)?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self, ready: SocketAddr) -> anyhow::Result<()> {
        for _ in 0..LOOKS {
            if TcpStream::connect(ready).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.subject.name(), self.log());
            }
            pause();
        }
        bail!("{} does not listen on {ready}:\n{}", self.subject.name(), self.log());
    }

    /// What the server wrote to its terminal.
    fn log(&self) -> String {
        std::fs::read_to_string(self._scratch.0.join("log.txt")).unwrap_or_default()
    }

    /// The process that was started; it may have children.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the server's processes, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let of = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        self.processes().iter().map(of).sum()
    }

    /// CPU time that the server's processes have used, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let of = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Fields after the name, which may hold spaces: state is the first, utime the 12th.
            let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        };
        self.processes().iter().map(of).sum::<f64>() / TICKS_PER_SECOND
    }

    fn processes(&self) -> Vec<u32> {
        let own = self.pid();
        let children =
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        std::iter::once(own).chain(children).collect()
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok()) {
            for _ in 0..LOOKS {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                pause();
            }
        }
        // It would not go; both fail only when it is gone after all.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process tells nobody when it begins to listen or ends"
)]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}

/// A new folder for the server of a port.
pub(crate) fn scratch_folder(port: u16) -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// A port of loopback that nothing listens on.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn tidegate(
    root: &Path,
    folder: &Path,
    port: u16,
    config: Option<&Path>,
    protocol: BenchProtocol,
) -> anyhow::Result<Command> {
    let mut command = Command::new(super::binary(root));
    command.arg("serve");
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    for (name, of) in [
        ("TIDEGATE_HTTP_LISTEN", Some(BenchProtocol::Http)),
        ("TIDEGATE_GRPC_LISTEN", Some(BenchProtocol::Grpc)),
        ("TIDEGATE_RESP_LISTEN", Some(BenchProtocol::Resp)),
        ("TIDEGATE_INTAKE_LISTEN", None),
    ] {
        let port = if of == Some(protocol) { port } else { free_port()? };
        command.env(name, format!("127.0.0.1:{port}"));
    }
    command.env("TIDEGATE_DATA_DIR", folder);
    Ok(command)
}

fn nginx(folder: &Path, port: u16, protocol: BenchProtocol) -> anyhow::Result<Command> {
    let http2 = if protocol == BenchProtocol::Grpc { " http2" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {}/{kind};\n", folder.display()))
        .concat();
    let config = format!(
        "daemon off;\nworker_processes auto;\nworker_rlimit_nofile 20000;\npid {folder}/pid;\n\
         error_log {folder}/error.log crit;\nevents {{ worker_connections 16000; }}\nhttp {{\n{temporary}    \
         access_log off;\n    keepalive_requests 1000000000;\n    keepalive_timeout 600s;\n    \
         default_type application/json;\n    server {{\n        listen 127.0.0.1:{port}{http2} reuseport backlog=16384;\n        \
         location / {{ return 200 '{REPLY}'; }}\n    }}\n}}\n",
        folder = folder.display(),
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).context("nginx.conf")?;
    let mut command = Command::new(find("nginx").context("nginx is missing: `make setup`")?);
    command.arg("-c").arg(&file).arg("-e").arg(folder.join("error.log"));
    Ok(command)
}

fn throttlecrab(root: &Path, port: u16, protocol: BenchProtocol) -> Command {
    let name = match protocol {
        BenchProtocol::Http => "--http",
        BenchProtocol::Resp => "--redis",
        BenchProtocol::Grpc => "--grpc",
    };
    let mut command = Command::new(root.join(".tools/bin/throttlecrab-server"));
    command
        .args([
            name,
            &format!("{name}-host"),
            "127.0.0.1",
            "--log-level",
            "error",
            "--store-capacity",
            "200000",
        ])
        .arg(format!("{name}-port"))
        .arg(port.to_string());
    command
}

fn redis(folder: &Path, port: u16) -> anyhow::Result<Command> {
    let mut command = Command::new(find("redis-server").context("redis-server is missing: `make setup`")?);
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxclients", "16000", "--port"])
        .arg(port.to_string())
        .arg("--dir")
        .arg(folder);
    Ok(command)
}

fn load_script(root: &Path, port: u16) -> anyhow::Result<String> {
    let script = std::fs::read_to_string(root.join("regression/gcra.lua")).context("regression/gcra.lua")?;
    let port = port.to_string();
    let digest = capture(Command::new("redis-cli").args(["-p", &port, "SCRIPT", "LOAD", &script]))?;
    Ok(digest.trim().to_owned())
}
