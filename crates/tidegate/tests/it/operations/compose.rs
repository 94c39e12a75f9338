//! The compose files of `deploy/`, started as processes: each service's command with its arguments, environment and
//! mounted files. Containers have names and networks of their own; here each `service:port` is a free port of this
//! machine, and each mounted folder a scratch one, wherever it is named.
//!
//! Grafana is no program of this machine: its provisioning is read, and what it names is asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::{Server, free_port};
use tidegate_wire::yaml::{Node, Value, read};

use crate::operations::{repository, text_of};
use crate::support::binary;

/// What every variable without a default is set to.
pub(crate) const SECRET: &str = "sixteen-letters-and-more";

/// A service of the files.
struct Service {
    image: String,
    words: Vec<String>,
    environment: Vec<(String, String)>,
    volumes: Vec<String>,
    /// `address:port:container's port`.
    published: Vec<String>,
}

/// The running services of some files; dropping it ends them.
pub(crate) struct Stack {
    services: BTreeMap<String, Service>,
    ports: BTreeMap<(String, String), u16>,
    folder: TempDir,
    running: BTreeMap<String, Server>,
    _postgres: Option<PostgresServer>,
}

impl Stack {
    /// Starts what `docker compose --file A --file B up` would.
    pub(crate) fn up(files: &[&str]) -> Self {
        let mut services = BTreeMap::new();
        for file in files {
            read_into(&mut services, file);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut stack =
            Self { services, ports: BTreeMap::new(), folder, running: BTreeMap::new(), _postgres: None };
        let names: Vec<String> = stack.services.keys().cloned().collect();
        if names.iter().any(|name| name == "postgres") {
            let server = PostgresServer::start(&[]);
            let environment: BTreeMap<_, _> =
                stack.services["postgres"].environment.iter().cloned().collect();
            let (user, database) = (&environment["POSTGRES_USER"], &environment["POSTGRES_DB"]);
            server.sql(&format!("CREATE ROLE {user} LOGIN"));
            server.sql(&format!("CREATE DATABASE {database} OWNER {user}"));
            stack.ports.insert(("postgres".to_owned(), "5432".to_owned()), server.port);
            stack._postgres = Some(server);
        }
        // The store comes first; all others wait for what they need.
        let (first, then): (Vec<_>, Vec<_>) = names.iter().partition(|name| *name == "redis");
        first.into_iter().chain(then).for_each(|name| stack.start(name));
        stack
    }

    /// Where a container's port is reached from outside; it must be published on loopback.
    pub(crate) fn published(&self, service: &str, port: &str) -> String {
        let ports = &self.services[service].published;
        assert!(
            ports.iter().any(|it| it.starts_with("127.0.0.1:") && it.ends_with(&format!(":{port}"))),
            "{service} does not publish {port}"
        );
        format!("127.0.0.1:{}", self.ports[&(service.to_owned(), port.to_owned())])
    }

    /// As if its container had been killed.
    pub(crate) fn kill(&mut self, service: &str) {
        drop(self.running.remove(service).unwrap());
    }

    /// A text of a mounted file, as the service sees it.
    pub(crate) fn mounted(&self, service: &str, path: &str) -> String {
        fs::read_to_string(self.place(service, path)).unwrap()
    }

    fn place(&self, service: &str, path: &str) -> std::path::PathBuf {
        self.folder.path().join(service).join(path.trim_start_matches('/'))
    }

    fn port(&mut self, service: &str, port: &str) -> u16 {
        *self.ports.entry((service.to_owned(), port.to_owned())).or_insert_with(free_port)
    }

    fn start(&mut self, name: &str) {
        let Service { image, words, environment, volumes, .. } = &self.services[name];
        let (image, words) = (image.clone(), words.clone());
        let (environment, volumes) = (environment.clone(), volumes.clone());
        for volume in &volumes {
            self.mount(name, volume);
        }
        let words: Vec<String> = words.iter().map(|word| self.here(name, &volumes, word)).collect();
        let environment: Vec<(String, String)> = environment
            .iter()
            .map(|(variable, value)| (variable.clone(), self.here(name, &volumes, value)))
            .collect();
        let mut command = match image.split(':').next().unwrap() {
            "tidegate" => {
                let mut command = binary();
                let what = if words.is_empty() { vec!["serve".to_owned()] } else { words };
                command.args(what);
                // The image's own: everything is in the folder that is mounted there.
                command.env("TIDEGATE_DATA_DIR", self.place(name, "/var/lib/tidegate"));
                // A machine that stands still for a moment is no store in trouble.
                command.env("TIDEGATE_SHARED_DEADLINE", "60s");
                // Loopback in a container is the container's own.
                for listener in ["HTTP", "GRPC", "RESP", "INTAKE"] {
                    command.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
                }
                command
            }
            "redis" => {
                let mut command = Command::new(&words[0]);
                let port = self.port(name, "6379").to_string();
                command.args(&words[1..]).args(["--bind", "127.0.0.1", "--port", &port]);
                command
            }
            "nginx" => self.nginx(name),
            "envoyproxy/envoy" => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
            "prom/prometheus" => {
                let mut command = Command::new("prometheus");
                command.args(&words);
                command
            }
            "postgres" | "grafana/grafana" => return,
            other => panic!("{name}: who knows how to start {other}?"),
        };
        let place = self.place(name, "");
        fs::create_dir_all(&place).unwrap();
        let envoy = repository(".venv/bin");
        let path = format!("{}:/usr/sbin:{}", envoy.display(), std::env::var("PATH").unwrap());
        command.envs(environment).env("PATH", path).current_dir(place);
        self.running.insert(name.to_owned(), Server::spawn(&mut command));
    }

    /// Puts what is mounted into the service's scratch folder.
    fn mount(&mut self, name: &str, volume: &str) {
        let mut parts = volume.split(':');
        let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
        let to = self.place(name, to);
        let Some(from) = from.strip_prefix("./") else { return fs::create_dir_all(to).unwrap() };
        self.copy(name, &repository("deploy").join(from), &to);
    }

    fn copy(&mut self, name: &str, from: &Path, to: &Path) {
        if from.is_dir() {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                self.copy(name, &entry.path(), &to.join(entry.file_name()));
            }
            return;
        }
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let text = fs::read_to_string(from).unwrap();
        fs::write(to, self.here(name, &[], &text)).unwrap();
    }

    /// A text with the addresses and mounted paths that hold on this machine.
    fn here(&mut self, name: &str, volumes: &[String], text: &str) -> String {
        let names: Vec<String> = self.services.keys().cloned().collect();
        let mut text =
            text.replace("$$", "$").replace("/tmp/", &format!("{}/", self.place(name, "").display()));
        for volume in volumes {
            let inside = volume.split(':').nth(1).unwrap();
            text = with_path(&text, inside, self.place(name, inside).to_str().unwrap());
        }
        for (service, word) in names.iter().map(|it| (it.as_str(), it.as_str())).chain([(name, "0.0.0.0")]) {
            for between in [":", ", port_value: "] {
                text = self.with_ports(service, &format!("{word}{between}"), between, &text);
            }
        }
        // Several Envoys share this machine.
        let text = text.replace("exec envoy ", "exec envoy --use-dynamic-base-id --concurrency 1 ");
        // A machine that stands still for a moment is no limiter in trouble, either.
        text.replace("timeout: 0.05s", "timeout: 60s").replace("_timeout 1s;", "_timeout 60s;")
    }

    /// `NAME:PORT` as the address on this machine, where no longer name ends so.
    fn with_ports(&mut self, service: &str, mark: &str, between: &str, text: &str) -> String {
        let mut pieces = text.split(mark);
        let mut made = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
            let is_inside = made.ends_with(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if digits.is_empty() || is_inside {
                made.push_str(mark);
                made.push_str(piece);
            } else {
                let port = self.port(service, &digits);
                made.push_str(&format!("127.0.0.1{between}{port}{}", &piece[digits.len()..]));
            }
        }
        made
    }

    /// As its image does: what is in `conf.d`, inside `http`.
    fn nginx(&self, name: &str) -> Command {
        let place = self.place(name, "");
        let shown = place.display();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = kinds.map(|kind| format!("{kind}_temp_path {shown}/{kind};\n")).concat();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {shown}/pid;\nerror_log {shown}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}include {shown}/etc/nginx/conf.d/*.conf;\n}}\n"
        );
        fs::write(place.join("nginx.conf"), text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(place.join("nginx.conf"));
        command
    }
}

/// A text with one path in the place of another, where that stands whole: no part of a longer one.
fn with_path(text: &str, from: &str, to: &str) -> String {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut pieces = text.split(from);
    let mut made = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let is_part = made.ends_with(|c: char| goes_on(c) || c == '/') || piece.starts_with(goes_on);
        made.push_str(if is_part { from } else { to });
        made.push_str(piece);
    }
    made
}

fn read_into(services: &mut BTreeMap<String, Service>, file: &str) {
    let root = read(text_of(&format!("deploy/{file}")).as_bytes()).unwrap();
    let Value::Map(found) = &field(&root, "services").unwrap().value else { panic!("{file}") };
    for (name, _, node) in found {
        let image = field(node, "image").map(|it| texts(it).concat());
        let image = image.unwrap_or_else(|| panic!("{file}: {name} has no image"));
        let all = |field_name: &str| field(node, field_name).map(texts).unwrap_or_default();
        let variables = match field(node, "environment").map(|it| &it.value) {
            Some(Value::Map(variables)) => &variables[..],
            _ => &[],
        };
        let filled = |(name, _, value): &(String, _, Node)| (name.clone(), filled_in(&texts(value).concat()));
        let environment = variables.iter().map(filled).collect();
        let (volumes, published) = (all("volumes"), all("ports"));
        let service = Service { image, words: words(node), environment, volumes, published };
        services.insert(name.clone(), service);
    }
}

fn words(node: &Node) -> Vec<String> {
    ["entrypoint", "command"].iter().filter_map(|it| field(node, it)).flat_map(texts).collect()
}

/// The texts of a list, or the one text.
pub(crate) fn texts(node: &Node) -> Vec<String> {
    match &node.value {
        Value::Text(text) => vec![text.clone()],
        Value::List(items) => items.iter().flat_map(texts).collect(),
        other => panic!("a {} where texts belong", other.kind()),
    }
}

pub(crate) fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|(key, _, _)| key == name).map(|(_, _, value)| value)
}

/// `${NAME:?why}` with [`SECRET`], `${NAME:-value}` with that value.
fn filled_in(text: &str) -> String {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return text.to_owned();
    };
    inner.split_once(":-").map_or(SECRET, |(_, value)| value).to_owned()
}
