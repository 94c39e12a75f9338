//! The examples of `deploy/` do what they say: a real nginx, a real Caddy and Traefik's own code ask the built binary,
//! which accepts the environment of the units and the compose files.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Tidegate, agent, binary};
use tidegate_testkit::Server;
use tidegate_wire::yaml::{Node, Value, read};

/// A running nginx, stopped when dropped.
pub(crate) struct Nginx {
    config: PathBuf,
    pub(crate) front: String,
}

impl Nginx {
    /// `deploy/nginx.conf` with our addresses in place of its own, and an application behind it.
    fn start(folder: &Path, tidegate: &str) -> Self {
        let application = format!("127.0.0.1:{}", tidegate_testkit::free_port());
        Self::start_before(folder, tidegate, &application, "return 200 application;")
    }

    /// The same before an application at this address, a server with these `directives`.
    pub(crate) fn start_before(folder: &Path, tidegate: &str, application: &str, directives: &str) -> Self {
        let front = format!("127.0.0.1:{}", tidegate_testkit::free_port());
        let mut example = include_str!("../../../../deploy/nginx.conf").to_owned();
        // A machine that stands still for a moment is no limiter in trouble.
        for (own, patient) in [
            ("proxy_connect_timeout 100ms", "proxy_connect_timeout 60s"),
            ("proxy_read_timeout 200ms", "proxy_read_timeout 60s"),
        ] {
            assert!(example.contains(own), "{own} is not in the example");
            example = example.replace(own, patient);
        }
        let example = example
            .replace("127.0.0.1:4000", tidegate)
            .replace("127.0.0.1:8080", &front)
            .replace("127.0.0.1:3000", application);
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = kinds.map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display())).concat();
        let text = format!(
            "pid {0}/pid;\nerror_log {0}/error.log;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{example}\n\
             server {{ listen {application}; {directives} }}\n}}\n",
            folder.display()
        );
        let config = folder.join("nginx.conf");
        std::fs::write(&config, text).unwrap();
        let nginx = Self { config, front };
        // nginx goes to the background once its sockets listen, so nobody has to wait for them.
        let started = nginx.command().output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        nginx
    }

    fn command(&self) -> Command {
        let program = ["/usr/sbin/nginx", "nginx"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("nginx"));
        command.arg("-c").arg(&self.config);
        command
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It fails only if nginx has ended already.
        drop(self.command().args(["-s", "stop"]).output());
    }
}

/// A running Caddy, killed when dropped.
struct Caddy {
    front: String,
    _server: Server,
}

impl Caddy {
    /// `deploy/Caddyfile` with our addresses in place of its own, and an application behind it.
    fn start(folder: &Path, tidegate: &str) -> Self {
        let free = || format!("127.0.0.1:{}", tidegate_testkit::free_port());
        let (front, application) = (free(), free());
        let example = deployed("Caddyfile");
        for own in ["127.0.0.1:4000", "\n:8080 {", "127.0.0.1:3000"] {
            assert!(example.contains(own), "{own} is not in the example");
        }
        let example = example
            .replace("127.0.0.1:4000", tidegate)
            .replace("\n:8080 {", &format!("\nhttp://{front} {{"))
            .replace("127.0.0.1:3000", &application);
        let sites = format!("{example}\nhttp://{application} {{\nrespond application\n}}\n");
        Self { front, _server: caddy(folder, &sites) }
    }
}

/// Starts a Caddy with these sites.
pub(crate) fn caddy(folder: &Path, sites: &str) -> Server {
    let config = folder.join("Caddyfile");
    // The log says on standard output when everything listens.
    std::fs::write(&config, format!("{{\nadmin off\nlog {{\noutput stdout\n}}\n}}\n{sites}")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&config);
    for home in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(home, folder);
    }
    Server::start(&mut command, "serving initial configuration")
}

/// A running Traefik and an application behind it, killed when dropped.
struct Traefik {
    front: String,
    _servers: [Server; 2],
}

impl Traefik {
    /// `deploy/traefik.yaml` with our addresses in place of its own.
    fn start(folder: &Path, tidegate: &str) -> Self {
        let free = || format!("127.0.0.1:{}", tidegate_testkit::free_port());
        let (front, application) = (free(), free());
        let example = deployed("traefik.yaml");
        for own in ["http://127.0.0.1:4000/v1/check", "http://127.0.0.1:3000\""] {
            assert!(example.contains(own), "{own} is not in the example");
        }
        let example = example.replace("127.0.0.1:4000", tidegate).replace("127.0.0.1:3000", &application);
        let file = folder.join("traefik.yaml");
        std::fs::write(&file, example).unwrap();
        // The application passes the fields on, as the example says that it may.
        let passing =
            ["RateLimit", "RateLimit-Policy"].map(|name| format!("header {name} {{header.{name}}}\n"));
        let behind =
            caddy(folder, &format!("http://{application} {{\n{}respond application\n}}\n", passing.concat()));
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/traefik-file");
        assert!(program.exists(), "{} is not there: run `make setup`", program.display());
        let server = Server::start(Command::new(program).arg(&front).arg(&file), "the file is in force");
        Self { front, _servers: [behind, server] }
    }
}

/// `/pay` once for each client, everything else 100 times; a client is its key, or its address.
const POLICIES: &str = "
[attributes.check]
client_id = { header = 'x-api-key' }

[[policy]]
name = 'pay'
match = { path = '/pay*' }
limit = 1
window_seconds = 3600

[[policy]]
name = 'everything'
match = { path = { not = ['/pay*'] } }
limit = 100
window_seconds = 3600
";

/// A service that believes a proxy's `headers`.
fn behind_a_proxy(headers: &str) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("tidegate.toml");
    std::fs::write(&file, POLICIES).unwrap();
    let environment = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_HTTP_TRUSTED_PROXY_HOPS", "1"),
        ("TIDEGATE_HTTP_PROXY_HEADERS", headers),
    ];
    Tidegate::start_in(data, &["--config", file.to_str().unwrap()], &environment)
}

/// What a client of a proxy sees while it behaves.
fn a_proxy_carries_the_limit_to_its_client(front: &str) {
    let ask = || agent().get(format!("http://{front}/page?a=b")).call().unwrap();
    for number in 1..=100 {
        let mut reply = ask();
        assert_eq!(reply.status(), 200, "request {number}");
        assert_eq!(reply.body_mut().read_to_string().unwrap(), "application");
        let state = reply.headers()["ratelimit"].to_str().unwrap();
        assert!(state.starts_with(&format!("\"everything\";r={};", 100 - number)), "{state}");
        assert!(reply.headers()["ratelimit-policy"].to_str().unwrap().starts_with("\"everything\";q=100;"));
    }
    let denied = ask();
    assert_eq!(denied.status(), 429);
    let wait: u64 = denied.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert!(denied.headers()["ratelimit"].to_str().unwrap().starts_with("\"everything\";r=0;"));
}

/// What a client of a proxy gets that tries to be taken for another, or to ask for something else.
fn a_client_cannot_talk_its_way_out_of_a_limit(front: &str) {
    let pay = |target: &str, fields: &[(&str, &[u8])]| {
        let mut request = http::Request::get(format!("http://{front}{target}"));
        for (name, value) in fields {
            request = request.header(*name, http::HeaderValue::from_bytes(value).unwrap());
        }
        agent().run(request.body(()).unwrap()).unwrap().status().as_u16()
    };
    assert_eq!(pay("/pay", &[]), 200);
    assert_eq!(pay("/pay", &[]), 429);
    let attacks: [&[(&str, &[u8])]; 11] = [
        &[("x-original-uri", b"/free")],
        &[("x-forwarded-uri", b"/free")],
        &[("x-original-uri", b"/free"), ("x-forwarded-uri", b"/free")],
        &[("x-original-method", b"HEAD"), ("x-forwarded-method", b"HEAD")],
        &[("x-forwarded-for", b"9.9.9.9")],
        &[("x-forwarded-for", b"\xff")],
        &[("x-forwarded-for", b"9.9.9.9"), ("x-forwarded-for", b"8.8.8.8,\xff")],
        &[("x-real-ip", b"9.9.9.9"), ("forwarded", b"for=9.9.9.9")],
        &[("x-api-key", b"")],
        // A field that is named here is for the next hop alone, unless it is the proxy's own word.
        &[("connection", b"x-forwarded-uri, x-forwarded-method, x-forwarded-for")],
        &[("connection", b"x-original-uri, x-original-method")],
    ];
    for attack in attacks {
        assert_eq!(pay("/pay", attack), 429, "{attack:?}");
    }
    for target in ["/pay?client_id=other", "/pay?path=/free", "//pay", "/%70ay", "/free/../pay", "/pay;x=1"] {
        assert_eq!(pay(target, &[]), 429, "{target}");
    }
    // A key is what it is, whatever stands in it.
    let key: &[(&str, &[u8])] = &[("x-api-key", b"k1&path=/free&client_id=k2")];
    assert_eq!((pay("/pay", key), pay("/pay", key)), (200, 429));
    let twice: &[(&str, &[u8])] = &[("x-api-key", b"k3"), ("x-api-key", b"k4")];
    assert_ne!(pay("/pay", twice), 200, "two keys are none");
}

#[test]
fn fault_59_nginx_lets_through_what_tidegate_lets_through() {
    let tidegate = behind_a_proxy("original");
    let folder = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(folder.path(), &tidegate.http.to_string());
    a_proxy_carries_the_limit_to_its_client(&nginx.front);
    a_client_cannot_talk_its_way_out_of_a_limit(&nginx.front);
    drop(tidegate);
    let unasked = agent().get(format!("http://{}/page", nginx.front)).call().unwrap();
    assert_eq!(unasked.status(), 503, "nobody gets through when nobody decides");
}

#[test]
fn fault_59_caddy_lets_through_what_tidegate_lets_through() {
    let tidegate = behind_a_proxy("forwarded");
    let folder = tempfile::tempdir().unwrap();
    let caddy = Caddy::start(folder.path(), &tidegate.http.to_string());
    a_proxy_carries_the_limit_to_its_client(&caddy.front);
    a_client_cannot_talk_its_way_out_of_a_limit(&caddy.front);
    drop(tidegate);
    let unasked = agent().get(format!("http://{}/page", caddy.front)).call().unwrap();
    assert_eq!(unasked.status(), 502, "nobody gets through when nobody decides");
}

#[test]
fn fault_59_traefik_lets_through_what_tidegate_lets_through() {
    let tidegate = behind_a_proxy("forwarded");
    let folder = tempfile::tempdir().unwrap();
    let traefik = Traefik::start(folder.path(), &tidegate.http.to_string());
    a_proxy_carries_the_limit_to_its_client(&traefik.front);
    a_client_cannot_talk_its_way_out_of_a_limit(&traefik.front);
    drop(tidegate);
    let unasked = agent().get(format!("http://{}/page", traefik.front)).call().unwrap();
    assert_eq!(unasked.status(), 500, "nobody gets through when nobody decides");
}

/// A file of `deploy/`.
fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A field of a YAML map.
fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|(key, _, _)| key == name).map(|(_, _, value)| value)
}

/// `${NAME:?why}` with a value of its own, `${NAME:-value}` with that one, as compose fills them in.
fn filled_in(text: &str) -> String {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return text.to_owned();
    };
    match inner.split_once(":-") {
        Some((_, value)) => value.to_owned(),
        None => "sixteen-letters-and-more".to_owned(),
    }
}

/// Fails unless every variable is a setting's and has a value that the server accepts.
fn accepted(what: &str, environment: &[(String, String)]) {
    let reference = binary().args(["config", "reference"]).output().unwrap().stdout;
    let reference = String::from_utf8(reference).unwrap();
    for (name, _) in environment {
        assert!(reference.contains(&format!("`{name}`")), "{what}: {name} is no setting");
    }
    let variables = environment.iter().map(|(name, value)| (name, value));
    let explained = binary().args(["config", "explain"]).envs(variables).output().unwrap();
    assert!(explained.status.success(), "{what}: {}", String::from_utf8_lossy(&explained.stdout));
}

#[test]
fn the_compose_files_start_nodes_with_settings_that_the_server_accepts() {
    for (file, nodes) in [("compose.yaml", 1), ("compose-cluster.yaml", 3)] {
        let root = read(deployed(file).as_bytes()).unwrap();
        let Value::Map(services) = &field(&root, "services").unwrap().value else { panic!("{file}") };
        let mut found = 0;
        for (name, _, service) in services {
            let Some(Value::Map(variables)) = field(service, "environment").map(|it| &it.value) else {
                continue;
            };
            if !variables.iter().any(|(name, _, _)| name.starts_with("TIDEGATE_")) {
                continue;
            }
            let text = |node: &Node| match &node.value {
                Value::Text(text) => filled_in(text),
                other => panic!("{file}: {name}: {}", other.kind()),
            };
            let environment: Vec<_> =
                variables.iter().map(|(name, _, value)| (name.clone(), text(value))).collect();
            accepted(file, &environment);
            found += 1;
        }
        assert_eq!(found, nodes, "{file}");
    }
}

#[test]
fn the_image_has_settings_that_the_server_accepts_and_keeps_its_data_on_the_volumes() {
    let image = deployed("Dockerfile").replace("\\\n", " ");
    let variables = image.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap().split_whitespace();
    let variables = variables.filter_map(|pair| pair.strip_prefix("TIDEGATE_")?.split_once('='));
    let variables: Vec<_> =
        variables.map(|(name, value)| (format!("TIDEGATE_{name}"), value.to_owned())).collect();
    // The token's file names no setting; the first start makes it.
    let (files, mut settings): (Vec<_>, Vec<_>) =
        variables.into_iter().partition(|(name, _)| name == "TIDEGATE_ADMIN_TOKEN_FILE");
    let data = settings.iter().find(|(name, _)| name == "TIDEGATE_DATA_DIR").unwrap().1.clone();
    assert_eq!(files[0].1, format!("{data}/admin.token"));
    settings.push(("TIDEGATE_ADMIN_TOKEN".to_owned(), "sixteen-letters-and-more".to_owned()));
    accepted("Dockerfile", &settings);
    for file in ["compose.yaml", "compose-cluster.yaml"] {
        let mounts = deployed(file).matches(&format!(":{data}\"]")).count();
        assert!(mounts > 0, "{file}: nothing is mounted at {data}");
    }
}

#[test]
fn the_units_have_settings_that_the_server_accepts_and_systemd_accepts_the_units() {
    let (unit, cluster) = (deployed("tidegate.service"), deployed("tidegate.service.d/cluster.conf"));
    let environment = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("Environment="));
        lines.map(|line| line.split_once('=').unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    };
    accepted("tidegate.service", &environment(&unit));
    let secrets = ["TIDEGATE_ADMIN_TOKEN", "TIDEGATE_GRPC_TOKEN", "TIDEGATE_RESP_PASSWORD"];
    let secrets = secrets.map(|name| (name.to_owned(), "sixteen-letters-and-more".to_owned()));
    accepted("cluster.conf", &[environment(&unit), environment(&cluster), secrets.to_vec()].concat());
    // The examples in its header.
    for name in ["TIDEGATE_STORE", "TIDEGATE_CONTROL"] {
        let mut urls = cluster.lines().filter_map(|line| line.split_once(&format!("#   {name}=")));
        accepted("cluster.conf's header", &[(name.to_owned(), urls.next().unwrap().1.to_owned())]);
    }

    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("tidegate.service");
    std::fs::write(&place, unit.replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"))).unwrap();
    std::fs::create_dir(folder.path().join("tidegate.service.d")).unwrap();
    std::fs::write(folder.path().join("tidegate.service.d/cluster.conf"), cluster).unwrap();
    let analyze = |words: &[&str]| Command::new("systemd-analyze").args(words).arg(&place).output();
    let verified = analyze(&["verify", "--man=no"]).expect("systemd-analyze is missing: run `make setup`");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("tidegate"), "{said}");
    // From 0, nothing that it could do harm with, to 100.
    let exposed = analyze(&["security", "--offline=true", "--no-pager", "--threshold=20"]).unwrap();
    assert!(exposed.status.success(), "{}", String::from_utf8_lossy(&exposed.stdout));
}
