//! A broker of Kafka in KRaft mode, which is its own controller, with the jars that `cargo xtask setup` puts into `.tools`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::ports::free_port;
use crate::process::Server;

/// A cluster's id, as 16 bytes in base64.
const CLUSTER: &str = "dGlkZWdhdGUtdGVzdHMtMQ";

/// A cluster of one broker.
#[derive(Debug)]
pub struct Kafka {
    folder: TempDir,
    port: u16,
    server: Option<Server>,
}

impl Kafka {
    /// Makes a cluster and starts its broker. It answers a few seconds later: [`Self::create_topic`] waits for that.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (port, controller) = (free_port(), free_port());
        let data = folder.path().join("data");
        let settings = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\nlog.dirs={}\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n",
            data.display()
        );
        std::fs::write(folder.path().join("server.properties"), settings).expect("its settings");
        let mut format = java(folder.path(), "kafka.tools.StorageTool");
        format.args(["format", "--standalone", "--cluster-id", CLUSTER, "--config", "server.properties"]);
        finish(&mut format);
        let mut kafka = Self { folder, port, server: None };
        kafka.start_again();
        kafka
    }

    /// Starts the broker that was killed.
    pub fn start_again(&mut self) {
        let mut command = java(self.folder.path(), "kafka.Kafka");
        command.arg("server.properties");
        self.server = Some(Server::spawn(&mut command));
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The broker's process.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn broker(&self) -> &Server {
        self.server.as_ref().expect("it was started")
    }

    /// Kills the broker, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// Makes a topic, when the broker answers.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn create_topic(&self, name: &str, partitions: u16, settings: &[&str]) {
        let mut command = java(self.folder.path(), "org.apache.kafka.tools.TopicCommand");
        command.args(["--bootstrap-server", &self.address(), "--create", "--topic", name]);
        command.args(["--partitions", &partitions.to_string(), "--replication-factor", "1"]);
        for setting in settings {
            command.args(["--config", setting]);
        }
        finish(&mut command);
    }

    /// Begins to read a topic with Kafka's own consumer, from its beginning on, until nothing has come for three minutes.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn read(&self, topic: &str) -> Records {
        let mut command = java(self.folder.path(), "org.apache.kafka.tools.consumer.ConsoleConsumer");
        command.args(["--bootstrap-server", &self.address(), "--topic", topic, "--from-beginning"]);
        command.args(["--property", "print.partition=true", "--timeout-ms", "180000"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("Java is there");
        let lines = BufReader::new(child.stdout.take().expect("the output is piped"));
        Records { child, lines }
    }
}

/// Records of a topic: those of one partition come in their order.
#[derive(Debug)]
pub struct Records {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Iterator for Records {
    type Item = (u16, String);

    /// The next record, its partition first. Waits for one; `None` if the consumer has ended.
    fn next(&mut self) -> Option<(u16, String)> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok()?;
        let (partition, value) = line.strip_prefix("Partition:")?.split_once('\t')?;
        Some((partition.parse().ok()?, value.trim_end_matches('\n').to_owned()))
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A class of Kafka's, in a small Java machine that is soon started.
fn java(folder: &Path, class: &str) -> Command {
    let jars = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools/kafka");
    assert!(jars.is_dir(), "{} has no jars of Kafka: run `cargo xtask setup`", jars.display());
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
    command.arg(jars.join("*")).arg(class).current_dir(folder);
    command
}

/// Runs a tool to its end.
fn finish(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("Java is there");
    assert!(
        output.status.success(),
        "{command:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
