//! redis-server: single, with a replica, Sentinels or a Cluster.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Server, free_port};

/// A redis-server without persistence.
#[derive(Debug)]
pub struct RedisServer {
    /// The process: freeze, thaw, kill.
    pub server: Server,
    /// Its port on 127.0.0.1.
    pub port: u16,
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
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let port = free_port();
        let server = launch(&folder, port, &options);
        Self { server, port, folder, options }
    }

    /// Its scratch folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again on the same port, empty, after it was killed.
    pub fn restart(&mut self) {
        self.server = launch(&self.folder, self.port, &self.options);
    }

    /// Sends one command and returns its reply as text, arrays by line.
    ///
    /// # Panics
    /// If the server does not answer within five seconds.
    pub fn command(&self, words: &[&str]) -> String {
        command(self.port, words)
    }
}

/// Sends one command to a Redis on the loopback address and returns its reply, arrays by line.
///
/// # Panics
/// If the server does not answer within five seconds.
pub fn command(port: u16, words: &[&str]) -> String {
    try_command(port, words).expect("redis answers within five seconds")
}

/// The same, where the server may hang up.
///
/// # Errors
/// When there is no connection, or it ends, or nothing comes for five seconds.
pub fn try_command(port: u16, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    read_reply(&mut BufReader::new(stream), &mut reply)?;
    Ok(reply)
}

fn read_reply(stream: &mut BufReader<TcpStream>, reply: &mut String) -> io::Result<()> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = || rest.parse::<usize>().map_err(io::Error::other);
    match kind {
        "$" if rest != "-1" => {
            let mut bytes = vec![0; length()? + 2];
            stream.read_exact(&mut bytes)?;
            reply.push_str(&String::from_utf8_lossy(&bytes[..bytes.len() - 2]));
            reply.push('\n');
        }
        "*" if rest != "-1" => {
            for _ in 0..length()? {
                read_reply(stream, reply)?;
            }
        }
        _ => {
            reply.push_str(rest);
            reply.push('\n');
        }
    }
    Ok(())
}

fn launch(folder: &TempDir, port: u16, options: &[String]) -> Server {
    let mut command = Command::new("redis-server");
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
        let server = |_| {
            let bus = free_port().to_string();
            RedisServer::start(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1000",
                "--repl-diskless-sync-delay",
                "0",
            ])
        };
        let servers: Vec<RedisServer> = (0..2 * masters).map(server).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let output = create.output().expect("redis-cli runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let cluster = Self { servers };
        let agreed = |server: &RedisServer| {
            server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && !server.command(&["INFO", "replication"]).contains("master_link_status:down")
        };
        while !cluster.servers.iter().all(agreed) {
            std::thread::yield_now();
        }
        cluster
    }

    /// The index of the server that is master of this key's slot, as the first reachable one says.
    ///
    /// # Panics
    /// If none is.
    #[must_use]
    pub fn master_of(&self, key: &str) -> usize {
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
        let line = nodes.lines().find(owns).expect("a master has the slot");
        let owner = |server: &RedisServer| line.contains(&format!(":{}@", server.port));
        self.servers.iter().position(owner).expect("it is one of ours")
    }
}

/// A master, its replica and three Sentinels that watch them as `mymaster`.
#[derive(Debug)]
pub struct SentinelTrio {
    /// The first master.
    pub master: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    /// Ports of the Sentinels.
    pub sentinels: Vec<u16>,
    _processes: Vec<Server>,
    _folder: TempDir,
}

impl SentinelTrio {
    /// Starts them, and waits until the Sentinels know each other and the replica.
    ///
    /// # Panics
    /// If redis-server or redis-sentinel is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]);
        let replica = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]);
        while !replica.command(&["INFO", "replication"]).contains("master_link_status:up") {
            std::thread::yield_now();
        }
        let (mut sentinels, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let port = free_port();
            let file = folder.path().join(format!("{port}.conf"));
            let settings = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 1000\n",
                master.port
            );
            std::fs::write(&file, settings).expect("the scratch folder is there");
            processes.push(Server::start(Command::new("redis-sentinel").arg(&file), "+monitor"));
            sentinels.push(port);
        }
        let know = |port: &u16| {
            let state = command(*port, &["SENTINEL", "MASTERS"]);
            let field =
                |name: &str| state.lines().skip_while(|line| *line != name).nth(1).unwrap_or("").to_owned();
            field("num-other-sentinels") == "2" && field("num-slaves") == "1" && field("flags") == "master"
        };
        while !sentinels.iter().all(know) {
            std::thread::yield_now();
        }
        Self { master, replica, sentinels, _processes: processes, _folder: folder }
    }
}
