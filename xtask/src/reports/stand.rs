//! The servers of a row, started as the bench starts them, and what they used.
//!
//! ```text
//!   tester --(wire: 200 ms, where the row asks for it)--> nodes, which share a port --> backend: `tidegate stub`
//!                                                           '--> Redis, or a Redis Cluster of three
//! ```
//!
//! All are ended when the stand is dropped, nodes first.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use super::claims::{AskedService, CountedIn, Preparation, StandPlan};
use crate::bench::{BenchConnection, BenchServer, Subject, binary, free_port, post, scratch_folder};
use crate::chore::{capture, find, run};

/// Most connections of a node: fewer than descriptors of a process where those are 20,000.
const MOST_CONNECTIONS: u32 = 18_000;
/// Where nodes listen whose clients are far away, and where those clients connect to.
const WIRE: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2));
/// Its delay one way, in milliseconds.
const WIRE_MS: &str = "100";
/// Connections for each process over which clients use up what they have: none of the processes misses all of them.
const SPENDERS: u32 = 32;
/// Clients that must be denied: as in the reports' requests.
const SPENT: u32 = 100;
/// Requests that fail until a breaker is open.
const BREAKING: u32 = 200;
/// Highest port of a node of a Redis Cluster, whose other port is 10,000 higher.
const CLUSTER_PORT: u16 = 55_000;

/// Running servers.
pub(crate) struct Stand {
    /// Host and port that the load goes to.
    pub(crate) at: String,
    /// Processes of Tidegate.
    pub(crate) nodes: Vec<BenchServer>,
    pages: Vec<SocketAddr>,
    stores: Vec<BenchServer>,
    _backend: Option<BenchServer>,
    _wire: Option<DelayedWire>,
}

/// What a row's servers have used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct ServersUse {
    /// CPU seconds of the nodes.
    pub(crate) nodes: f64,
    /// CPU seconds of the store's servers.
    pub(crate) stores: f64,
    /// Calls of the store, and the seconds that they took; none where no page says.
    pub(crate) calls: Option<(f64, f64)>,
}

/// A process that delays packets; ended when dropped.
struct DelayedWire(Child);

impl Drop for DelayedWire {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Stand {
    /// Starts what a row needs, and prepares it. Data of nodes is in `data`, or goes with them.
    ///
    /// # Errors
    /// When a server is not installed, does not start, or answers wrongly.
    pub(crate) fn start(
        root: &Path,
        plan: &StandPlan,
        shared: &str,
        data: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let wire = if plan.wire { Some(wire(root)?) } else { None };
        let (backend, backend_port) = backend(root, plan)?;
        let (stores, store) = stores(root, plan.store)?;
        let port = free_port()?;
        let host = if plan.wire { WIRE.0 } else { Ipv4Addr::LOCALHOST };
        let mut stand = Self {
            at: format!("{}:{port}", if plan.wire { WIRE.1 } else { host }),
            nodes: Vec::new(),
            pages: Vec::new(),
            stores,
            _backend: backend,
            _wire: wire,
        };
        for _ in 0..plan.processes {
            let own = free_port()?;
            let folder = scratch_folder(own)?;
            let file = NodeFile { plan, shared, store: &store, port, host, own, backend_port };
            let data = data.map_or_else(|| folder.join("data"), Path::to_path_buf);
            let path = folder.join("tidegate.toml");
            std::fs::write(&path, file.text(&data)).with_context(|| path.display().to_string())?;
            let mut command = Command::new(binary(root));
            command.args(["serve", "--config"]).arg(&path);
            let ready = SocketAddr::from((Ipv4Addr::LOCALHOST, own));
            let address = SocketAddr::from((host, port));
            stand.nodes.push(BenchServer::launch(Subject::Tidegate, folder, command, address, ready)?);
            // What is the limiter's own is the listener of gRPC, which has no pages.
            if plan.service != AskedService::Limiter {
                stand.pages.push(ready);
            }
        }
        stand.prepare(plan, SocketAddr::from((host, port)))?;
        Ok(stand)
    }

    fn prepare(&self, plan: &StandPlan, at: SocketAddr) -> anyhow::Result<()> {
        match plan.before {
            Preparation::Nothing => Ok(()),
            Preparation::Spend => spend(at, plan.processes),
            Preparation::Break => open_the_breaker(at),
        }
    }

    /// What all have used since they were started.
    pub(crate) fn used(&self) -> ServersUse {
        let calls = self.pages.iter().filter_map(|page| store_calls(*page));
        ServersUse {
            nodes: self.nodes.iter().map(BenchServer::cpu_seconds).sum(),
            stores: self.stores.iter().map(BenchServer::cpu_seconds).sum(),
            calls: calls.reduce(|one, other| (one.0 + other.0, one.1 + other.1)),
        }
    }

    /// Whether the store is a server of its own.
    pub(crate) fn has_store(&self) -> bool {
        !self.stores.is_empty()
    }

    /// The process to watch, where there is one alone and it is here.
    pub(crate) fn only_pid(&self) -> Option<u32> {
        match (self.nodes.as_slice(), &self._wire) {
            ([node], None) => Some(node.pid()),
            _ => None,
        }
    }
}

/// What a node is configured by.
struct NodeFile<'a> {
    plan: &'a StandPlan,
    shared: &'a str,
    store: &'a str,
    port: u16,
    host: Ipv4Addr,
    own: u16,
    backend_port: u16,
}

impl NodeFile<'_> {
    /// Each node has one listener of its own, by which it is seen to be up: that of gRPC where HTTP is what is shared, else
    /// that of HTTP, which has its metrics, too.
    fn text(&self, data: &Path) -> String {
        let asked = format!("127.0.0.1:{}", self.port);
        let own = format!("127.0.0.1:{}", self.own);
        let off = || "off".to_owned();
        let (http, grpc, resp, intake) = match self.plan.service {
            AskedService::Limiter => (asked, own, off(), off()),
            AskedService::Grpc => (own, asked, off(), off()),
            AskedService::Resp => (own, off(), asked, off()),
            AskedService::Intake => (own, off(), off(), asked),
            AskedService::Gateway | AskedService::Edge => (own, off(), off(), off()),
        };
        let text = format!(
            "store = \"{}\"\ndata_dir = \"{}\"\nlog.level = \"warn\"\nmemory.snapshot = false\n\
             limits.connections = {MOST_CONNECTIONS}\nruntime.share_ports = {}\nhttp.listen = \"{http}\"\n\
             grpc.listen = \"{grpc}\"\nresp.listen = \"{resp}\"\nintake.listen = \"{intake}\"\nedge.api_listen = \"off\"\n",
            self.store,
            data.display(),
            self.plan.processes > 1,
        );
        let listen = format!("{}:{}", self.host, self.port);
        let listener = match self.plan.service {
            AskedService::Gateway => format!("gateway.listener = [{{ listen = \"{listen}\" }}]\n"),
            AskedService::Edge => {
                format!("edge.listener = [{{ listen = \"{listen}\", affinity = \"off\" }}]\n")
            }
            _ => String::new(),
        };
        let rest = format!("{listener}{}{}", self.plan.config, self.shared);
        let rest = rest.replace("{backend}", &self.backend_port.to_string());
        text + &rest
    }
}

/// A server behind, and its port; only the port of one where the row has none.
fn backend(root: &Path, plan: &StandPlan) -> anyhow::Result<(Option<BenchServer>, u16)> {
    let port = free_port()?;
    let Some(delay) = plan.backend_ms else { return Ok((None, port)) };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut command = Command::new(binary(root));
    command.args(["stub", &address.to_string(), "--threads", "2", "--delay-ms", &delay.to_string()]);
    let server = BenchServer::launch(Subject::Tidegate, scratch_folder(port)?, command, address, address)?;
    Ok((Some(server), port))
}

/// The store's servers, and what the setting `store` says.
fn stores(root: &Path, kind: CountedIn) -> anyhow::Result<(Vec<BenchServer>, String)> {
    match kind {
        CountedIn::Memory => Ok((Vec::new(), "memory".to_owned())),
        CountedIn::Redis => {
            let server = BenchServer::start(root, Subject::RedisGet, None)?;
            let store = format!("redis://{}/0", server.address);
            Ok((vec![server], store))
        }
        CountedIn::RedisCluster => {
            let servers = (0..3).map(|_| cluster_node()).collect::<Result<Vec<_>, _>>()?;
            let nodes: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
            let mut create = Command::new("redis-cli");
            capture(create.args(["--cluster", "create"]).args(&nodes).arg("--cluster-yes"))?;
            join(servers[0].address)?;
            Ok((servers, format!("redis-cluster://{}", nodes.join(","))))
        }
    }
}

fn cluster_node() -> anyhow::Result<BenchServer> {
    let mut port = free_port()?;
    while port >= CLUSTER_PORT {
        port = free_port()?;
    }
    let folder = scratch_folder(port)?;
    let program = find("redis-server").context("redis-server is missing: `make setup`")?;
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--cluster-enabled", "yes"]);
    command.args(["--port", &port.to_string(), "--dir"]).arg(&folder);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    BenchServer::launch(Subject::RedisGet, folder, command, address, address)
}

/// Waits until a cluster serves: `redis-cli` itself asks again and again, for five seconds.
fn join(node: SocketAddr) -> anyhow::Result<()> {
    let port = node.port().to_string();
    let said =
        capture(Command::new("redis-cli").args(["-p", &port, "-r", "50", "-i", "0.1", "cluster", "info"]))?;
    if !said.trim_end().rsplit("cluster_state:").next().is_some_and(|last| last.starts_with("ok")) {
        bail!("the Redis Cluster does not serve: {said}");
    }
    Ok(())
}

/// The wire of regression/round-trip, in a network namespace that is there for it.
fn wire(root: &Path) -> anyhow::Result<DelayedWire> {
    let python = find("python3").context("python3 is missing: `make setup`")?;
    let mut command = Command::new(python);
    command.arg(root.join("regression/round-trip/delay.py")).arg(WIRE_MS).stdout(Stdio::piped());
    let mut wire = DelayedWire(command.spawn().context("delay.py does not start")?);
    let said = wire.0.stdout.take().context("delay.py says nothing")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).context("delay.py")?;
    if line.trim() != "ready" {
        bail!("there is no wire: /dev/net/tun and user namespaces are needed");
    }
    let address = format!("{}/24", WIRE.0);
    for words in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &address, "dev", "wire"],
        &["link", "set", "wire", "txqueuelen", "10000", "up"],
    ] {
        run(Command::new("ip").args(words))?;
    }
    Ok(wire)
}

/// Has every client that must be denied use up what it has, in every process.
fn spend(at: SocketAddr, processes: u32) -> anyhow::Result<()> {
    let opened = (0..processes * SPENDERS).map(|_| BenchConnection::open(at));
    let mut connections = opened.collect::<Result<Vec<_>, _>>()?;
    for client in 0..SPENT {
        let body = format!(r#"{{"client_id":"spent-{client}","resource":"spent"}}"#);
        let request = post("/api/v1/ratelimit", &body);
        for connection in &mut connections {
            connection.send(&request)?;
        }
        for connection in &mut connections {
            let reply = connection.receive()?;
            if reply.status != 200 {
                bail!("a decision is answered {}: {}", reply.status, reply.body);
            }
        }
    }
    Ok(())
}

/// Asks a gateway whose server is not there until its breaker must be open.
fn open_the_breaker(at: SocketAddr) -> anyhow::Result<()> {
    let mut last = 0;
    for _ in 0..BREAKING {
        let mut connection = BenchConnection::open(at)?;
        connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        last = connection.receive()?.status;
    }
    if last != 503 {
        bail!("the breaker is not open: the gateway answers {last}");
    }
    Ok(())
}

/// Calls of the store by a node, and the seconds that they took, by its metrics.
fn store_calls(page: SocketAddr) -> Option<(f64, f64)> {
    let mut connection = BenchConnection::open(page).ok()?;
    connection.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let reply = connection.receive().ok()?;
    if reply.status != 200 {
        return None;
    }
    let sum = |kind: &str| -> f64 {
        let name = format!("tidegate_store_call_duration_seconds_{kind}");
        let lines = reply.body.lines().filter(|line| line.starts_with(&name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Some((sum("count"), sum("sum")))
}

/// A folder below `target/` that is empty.
///
/// # Errors
/// When it cannot be made so.
pub(crate) fn empty_folder(root: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let folder = root.join("target/reports").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::claims;

    #[test]
    fn every_rows_settings_are_toml_with_all_ports_filled_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for report in claims::read(root).unwrap() {
            for row in &report.row {
                let file = NodeFile {
                    plan: &row.stand,
                    shared: &report.config,
                    store: "memory",
                    port: 1,
                    host: Ipv4Addr::LOCALHOST,
                    own: 2,
                    backend_port: 3,
                };
                let text = file.text(Path::new("/data"));
                let read = toml::from_str::<serde_json::Value>(&text);
                assert!(read.is_ok() && !text.contains("{backend}"), "{}: {read:?}\n{text}", row.name);
            }
        }
    }
}
