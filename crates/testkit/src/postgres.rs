//! A PostgreSQL cluster in a scratch folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::{Server, free_port};

/// A PostgreSQL server that trusts the loopback address. User and database are `postgres`.
#[derive(Debug)]
pub struct PostgresServer {
    /// The process: freeze, thaw, kill.
    pub server: Server,
    /// Its port on 127.0.0.1.
    pub port: u16,
    folder: TempDir,
    options: Vec<String>,
}

impl PostgresServer {
    /// Makes a cluster and starts it with these settings (`name=value`).
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = data(&folder);
        run(as_postgres("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres", "--no-sync"]));
        let port = free_port();
        let options: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = launch(&data, port, &options);
        Self { server, port, folder, options }
    }

    /// The same, where the server also speaks TLS with these certificates, and only so over TCP.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates) -> Self {
        let mut made = Self::start(&[]);
        // The key must belong to the server's user, and be readable by it alone.
        for (from, name) in [(certificates.certificate(), "server.crt"), (certificates.key(), "server.key")] {
            let to = data(&made.folder).join(name);
            std::fs::copy(from, &to).expect("the scratch folder is there");
            run(Command::new("chmod").arg("0600").arg(&to));
            if is_root() {
                run(Command::new("chown").arg("postgres").arg(&to));
            }
        }
        let only_tls = "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\n\
                        hostssl all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data(&made.folder).join("pg_hba.conf"), only_tls).expect("the data folder is there");
        made.options.push("ssl=on".to_owned());
        made.server.end(crate::Signal::INT);
        made.restart();
        made
    }

    /// Starts it again on the same port, with its data, after it was killed or ended.
    pub fn restart(&mut self) {
        self.server = launch(&data(&self.folder), self.port, &self.options);
    }

    /// Keeps a copy of its data as it is now, as a backup would: it is ended for that, and started again.
    ///
    /// # Panics
    /// If the data cannot be copied.
    pub fn back_up(&mut self) {
        self.server.end(crate::Signal::INT);
        copy(&data(&self.folder), &self.folder.path().join("backup"));
        self.restart();
    }

    /// Puts the backup in the place of its data, as after a failover that lost what came later. It must
    /// have ended.
    ///
    /// # Panics
    /// If there is no backup.
    pub fn go_back(&mut self) {
        std::fs::remove_dir_all(data(&self.folder)).expect("its data can be removed");
        copy(&self.folder.path().join("backup"), &data(&self.folder));
    }

    /// Kills it with all its backends, as a crash of the machine would.
    pub fn crash(&mut self) {
        let pid = self.server.pid();
        // So that it makes no further ones.
        self.server.freeze();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        self.server.kill();
        for child in children.split_whitespace() {
            // Without their parent they end by themselves; until then the data is locked.
            while Path::new("/proc").join(child).exists() {
                std::thread::yield_now();
            }
        }
    }

    /// How to connect, as libpq writes it.
    #[must_use]
    pub fn connection_string(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Runs SQL with psql and returns its output, unaligned.
    ///
    /// # Panics
    /// If psql fails.
    pub fn sql(&self, sql: &str) -> String {
        let output = Command::new(program("psql"))
            .args(["-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1"])
            .args(["-p", &self.port.to_string(), "-c", sql])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The processes of its clients, oldest first, without those of [`Self::sql`], the last of which may still be ending.
    #[must_use]
    pub fn clients(&self) -> Vec<u32> {
        let pids = self.sql(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'psql' \
             ORDER BY backend_start, pid",
        );
        pids.lines().map(|pid| pid.parse().expect("a number of a process")).collect()
    }
}

fn launch(data: &Path, port: u16, options: &[String]) -> Server {
    let mut postgres = as_postgres("postgres");
    postgres.arg("-D").arg(data).arg("-p").arg(port.to_string());
    postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]);
    options.iter().for_each(|option| {
        postgres.args(["-c", option]);
    });
    // It logs to its standard error, and `Server` watches the output.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(postgres.get_program()).args(postgres.get_args());
    Server::start(&mut shell, "database system is ready to accept connections")
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to));
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// PostgreSQL refuses to run as root.
fn as_postgres(name: &str) -> Command {
    if !is_root() {
        return Command::new(program(name));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]).arg(program(name));
    command
}

/// Debian keeps the server's programs out of the path.
fn program(name: &str) -> PathBuf {
    let debian = Path::new("/usr/lib/postgresql/15/bin").join(name);
    if debian.exists() { debian } else { PathBuf::from(name) }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
