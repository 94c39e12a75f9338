//! `tidegate import nginx`: the examples of `docs/nginx.md`, asked the same through nginx and through Tidegate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use super::backend::{Hold, Reply, ask, backend, send};
use crate::support::{Tidegate, binary};
use tidegate_algorithms::random::Random;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;

/// An example of the documentation in front of backends, through both.
struct Both {
    /// The ports of the example's own addresses: nginx's, Tidegate's.
    ports: BTreeMap<u16, [u16; 2]>,
    backends: Vec<Hold>,
    _nginx: Nginx,
    _tidegate: Tidegate,
    /// What the import said beside the configuration.
    said: String,
    /// What nginx reads until it has stopped.
    files: (tempfile::TempDir, Certificates),
}

const LISTENERS: [u16; 3] = [8080, 8081, 8443];

impl Both {
    fn start(example: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = example_of(example);
        let certificates = Certificates::make();
        let mut text = text
            .replace("/etc/ssl/shop.pem", certificates.certificate().to_str().unwrap())
            .replace("/etc/ssl/shop.key", certificates.key().to_str().unwrap());
        if text.contains("/etc/ssl/pay") {
            let pay = certificates.issue_named("pay", "DNS:pay.example");
            text = text.replace("/etc/ssl/pay.pem", pay.certificate.to_str().unwrap());
            text = text.replace("/etc/ssl/pay.key", pay.key.to_str().unwrap());
        }
        let mut backends = Vec::new();
        for (port, name) in [(3000, "zero"), (3001, "one"), (3002, "two")] {
            let (address, hold) = backend(name);
            text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
            backends.push(hold);
        }
        let ports: BTreeMap<u16, [u16; 2]> =
            LISTENERS.iter().map(|port| (*port, [free_port(), free_port()])).collect();
        let [there, here] = [0, 1].map(|side| {
            ports.iter().fold(text.clone(), |text, (port, free)| {
                text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{}", free[side]))
            })
        });
        let nginx = Nginx::start(folder.path(), &there);
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, here).unwrap();
        let data = tempfile::tempdir().unwrap();
        let output = data.path().join("tidegate.toml");
        let ran = import(&[file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.success(), "{said}");
        let arguments = ["--config", output.to_str().unwrap()];
        let tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
        Self { ports, backends, _nginx: nginx, _tidegate: tidegate, said, files: (folder, certificates) }
    }

    /// nginx's answer and Tidegate's to the same request.
    fn ask(&self, target: &str, arguments: &[&str]) -> [Reply; 2] {
        let (port, path) = target.split_once('/').unwrap();
        let (scheme, port) = port.split_once(':').unwrap();
        let ports = self.ports[&port.parse().unwrap()];
        ports.map(|port| ask(&format!("{scheme}://127.0.0.1:{port}/{path}"), arguments))
    }

    /// The answer of both.
    fn same(&self, target: &str, arguments: &[&str]) -> Reply {
        let [theirs, ours] = self.ask(target, arguments);
        assert_eq!(theirs, ours, "nginx's, and ours: {target} {arguments:?}");
        ours
    }
}

/// A running nginx with a configuration of its own; dropping it stops it.
pub(super) struct Nginx {
    config: PathBuf,
}

impl Nginx {
    pub(super) fn start(folder: &Path, http: &str) -> Self {
        let config = folder.join("served.conf");
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display()));
        let own = folder.display();
        let text = format!(
            "pid {own}/pid;\nerror_log {own}/error.log;\nworker_processes 1;\nevents {{}}\nhttp {{\n\
             access_log off;\n{}{http}\n}}\n",
            temporary.concat()
        );
        std::fs::write(&config, text).unwrap();
        let nginx = Self { config };
        // It goes to the background once its sockets listen, so nobody has to wait for them.
        let started = nginx.command().output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        nginx
    }

    fn command(&self) -> Command {
        let mut command = Command::new("nginx");
        command.env("PATH", "/usr/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin");
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

/// An example of `docs/nginx.md`.
fn example_of(name: &str) -> String {
    let page = include_str!("../../../../../docs/nginx.md");
    let marker = format!("<!-- example {name} of crates/tidegate/tests/it/import.rs -->");
    let after = page.split_once(&marker).unwrap().1;
    let body = after.split_once("```nginx\n").unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

pub(super) fn import(arguments: &[&str]) -> Output {
    binary().args(["import", "nginx"]).args(arguments).output().unwrap()
}

#[test]
fn a_site_is_the_same_through_nginx_and_imported() {
    let site = Both::start("site");
    let shop = ["-H", "Host: shop.example"];
    for path in ["/", "/cart?item=1&item=2", "/a%20b", "/a/b/", "/apix", "/health/more"] {
        let target = format!("http:8080{path}");
        // Which of two servers is next differs; what it is sent does not.
        let [theirs, ours] = site.ask(&target, &shop).map(|reply| {
            let body = reply.body.unwrap().split_once(' ').unwrap().1.to_owned();
            (reply.status, body)
        });
        assert_eq!(theirs, ours, "{path}");
    }
    for path in [
        "/api/users?x=1",
        "/api/",
        "/api/a/b/",
        "/users/7/orders",
        "/exact",
        "/exact?q=1",
        "/old/a",
        "/moved/a%20b//c?d=%2F&e",
        "/docs/a;b=1/?",
    ] {
        let reply = site.same(&format!("http:8080{path}"), &shop);
        assert!([200, 301, 308].contains(&reply.status), "{reply:?}");
    }
    let api = site.same("http:8080/api/users", &shop);
    assert_eq!(api.fields.get("x-api").map(String::as_str), Some("yes"));
    assert!(!api.fields.contains_key("x-backend-secret") && api.body.unwrap().contains("GET /v2/users"));
    for (path, status) in [("/health", 200), ("/gone", 410), ("/internal", 404)] {
        assert_eq!(site.same(&format!("http:8080{path}"), &shop).status, status, "{path}");
    }
    for host in ["admin.example", "a.admin.example", "A.B.ADMIN.example:99"] {
        let reply = site.same("http:8080/health", &["-H", &format!("Host: {host}")]);
        assert!(reply.body.unwrap().starts_with("two "), "{host}");
    }
    let unknown = site.same("http:8080/health", &["-H", "Host: nobody.example"]);
    assert_eq!(unknown.body.as_deref(), Some("fine\n"), "the default server takes other hosts");
    let small = site.same("http:8080/api/post", &["-H", "Host: shop.example", "-d", "a=b"]);
    assert!(small.body.unwrap().ends_with("a=b"));
    let large = "x".repeat(1_025);
    let refused = site.ask("http:8080/post", &["-H", "Host: shop.example", "-d", &large]);
    assert_eq!(refused.map(|reply| reply.status), [413, 413]);
    // Three of four, by both.
    let mut counts = [0, 0];
    for _ in 0..40 {
        for (count, reply) in counts.iter_mut().zip(site.ask("http:8080/weights", &shop)) {
            *count += usize::from(reply.fields["x-backend"] == "zero");
        }
    }
    assert_eq!(counts[0], 30, "nginx");
    assert!((25..=35).contains(&counts[1]), "{counts:?}");
    for expected in ["location: /api is answered as /api/ is", "proxy_pass: backup servers are asked"] {
        assert!(site.said.contains(expected), "{expected}: {}", site.said);
    }
}

/// What `docs/nginx.md` calls different on purpose: a slash at the end does not matter, and what is sent on behind the path of a
/// `proxy_pass` is not decoded.
fn is_different(path: &str, rest: &str) -> bool {
    let is_exact = ["/health", "/gone", "/exact", "/internal", "/users/7/orders"].contains(&path);
    let is_prefix = ["/api", "/old", "/moved", "/docs"].contains(&path);
    let is_spelt = ["//c", "/%7Ex", "/A%2DB", "/a%2Fb"].contains(&rest);
    (is_exact && rest == "/") || (is_prefix && rest.is_empty()) || (path.starts_with("/api") && is_spelt)
}

#[test]
fn two_hundred_requests_are_the_same_through_nginx_and_imported() {
    const SEED: u64 = 20_261_128;
    // Of paths, of what follows them, and of queries, the first is nothing.
    const PATHS: &str = " /cart /api /api/users /users/7/orders /users/a/b/orders /users/orders /health /gone /old \
        /old/page /moved /moved/a/b /docs /docs/a /exact /internal /API";
    const RESTS: &str = " / /x /a%20b /%7Ex /a;b=1 /a+b /caf%C3%A9 /a:b@c /A%2DB //c /a%2Fb";
    const QUERIES: &str = " ?x=1 ?a=b&c=%2F ?q=a%20b+c";
    const METHODS: &str = "GET POST PUT PATCH DELETE OPTIONS";
    const HOSTS: &str = "shop.example admin.example a.b.admin.example nobody.example";
    let site = Both::start("site");
    let mut random = Random::seeded(SEED);
    let mut drawn = |words: &'static str| {
        let words: Vec<&str> = words.split(' ').collect();
        words[random.index(words.len())]
    };
    let mut asked = 0;
    while asked < 200 {
        let [path, rest, query, method, host] = [PATHS, RESTS, QUERIES, METHODS, HOSTS].map(&mut drawn);
        if (path.is_empty() && rest.is_empty()) || is_different(path, rest) {
            continue;
        }
        asked += 1;
        let has_body = ["POST", "PUT", "PATCH"].contains(&method);
        let rest_of_it = if has_body { "Content-Length: 3\r\n\r\na=b" } else { "\r\n" };
        let line = format!("{method} {path}{rest}{query} HTTP/1.1");
        let request = format!("{line}\r\nHost: {host}\r\nConnection: close\r\n{rest_of_it}");
        let [theirs, ours] = site.ports[&8080].map(|port| whichever(send(port, &request)));
        assert_eq!(theirs, ours, "nginx's, and ours: {line}, {host} (seed {SEED})");
    }
}

/// The reply with one name for the two servers that do the same work by turns.
fn whichever(mut reply: Reply) -> Reply {
    for name in ["zero", "one"] {
        if let Some(body) = reply.body.as_mut().filter(|body| body.starts_with(name)) {
            body.replace_range(..name.len(), "either");
        }
    }
    if let Some(server) = reply.fields.get_mut("x-backend").filter(|server| server.as_str() != "two") {
        "either".clone_into(server);
    }
    reply
}

#[test]
fn limits_let_through_as_many_as_nginx_does() {
    let limited = Both::start("limits");
    let statuses = |path: &str, arguments: &[&str]| {
        let replies: Vec<[u16; 2]> =
            (0..5).map(|_| limited.ask(&format!("http:8080{path}"), arguments).map(|it| it.status)).collect();
        [0, 1].map(|side| replies.iter().map(|it| it[side]).collect::<Vec<_>>())
    };
    assert_eq!(statuses("/login", &[]), [[200, 200, 200, 429, 429], [200, 200, 200, 429, 429]]);
    let one = [200, 429, 429, 429, 429];
    assert_eq!(statuses("/keys", &["-H", "X-Api-Key: a"]), [one, one]);
    assert_eq!(statuses("/keys", &["-H", "X-Api-Key: b"]), [one, one]);
    assert_eq!(statuses("/keys", &[]), [[200; 5], [200; 5]], "without a key nothing is counted");

    // One connection at a time: while one is held, no other.
    for port in limited.ports[&8080] {
        let url = format!("http://127.0.0.1:{port}");
        let hold = &limited.backends[0];
        let held = thread::spawn({
            let url = format!("{url}/hold");
            move || ask(&url, &[]).status
        });
        hold.arrived.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(ask(&format!("{url}/other"), &[]).status, 429);
        hold.release.send(()).unwrap();
        assert_eq!(held.join().unwrap(), 200);
        // The permit is back when the reply has ended, which its client may see first.
        let begun = tidegate_net::clock::monotonic();
        while ask(&format!("{url}/other"), &[]).status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the permit never came back");
        }
    }
}

#[test]
fn another_service_is_asked_as_nginx_asks_it() {
    let asked = Both::start("auth");
    let good = asked.same("http:8080/page?x=1", &["-H", "Authorization: Bearer good", "-H", "X-User: root"]);
    assert!(good.status == 200 && good.body.unwrap().contains("\"x-user\": \"alice\""));
    let [theirs, ours] = asked.ask("http:8080/page", &["-H", "Authorization: Bearer bad"]);
    assert_eq!((theirs.status, ours.status), (401, 401));
    assert_eq!(asked.same("http:8080/verify", &["-H", "Authorization: Bearer good"]).status, 404);
}

#[test]
fn plain_http_is_sent_to_https() {
    let secured = Both::start("https");
    let shop = ["-H", "Host: shop.example"];
    let [theirs, ours] = secured.ask("http:8081/a?b=c", &shop);
    assert_eq!((theirs.status, ours.status), (301, 308), "as docs/nginx.md has it");
    assert_eq!(theirs.fields, ours.fields);
    let reply = secured.same("https:8443/a?b=c", &shop);
    assert_eq!(reply.fields["strict-transport-security"], "max-age=86400");
    assert!(reply.body.unwrap().contains("\"host\": \"shop.example\""));
    // curl goes on only if it is shown a certificate of the name that it asks for.
    for port in secured.ports[&8443] {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-i",
            "--max-time",
            "60",
            "--resolve",
            &format!("pay.example:{port}:127.0.0.1"),
            "--cacert",
        ]);
        let ran = curl.arg(secured.files.1.authority()).arg(format!("https://pay.example:{port}/a")).output();
        let said = String::from_utf8(ran.unwrap().stdout).unwrap();
        assert!(said.to_ascii_lowercase().contains("x-backend: one"), "{port}: {said}");
    }
}

#[test]
fn what_is_not_understood_is_listed_by_line_and_keeps_its_location_closed() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part.conf");
    let (file, output) = (folder.path().join("nginx.conf"), folder.path().join("tidegate.toml"));
    std::fs::write(&part, "location /guarded/ {\n  deny all;\n  proxy_pass http://127.0.0.1:1;\n}\n")
        .unwrap();
    let text = "worker_processes 4;\nhttp {\n  server {\n    listen 127.0.0.1:8080;\n    include part*.conf;\n    \
        location / { proxy_pass http://$backend; }\n    location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; }\n  }\n}\n";
    std::fs::write(&file, text).unwrap();
    let (file, output) = (file.to_str().unwrap(), output.to_str().unwrap());
    let refused = import(&[file, "--output", output]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(!Path::new(output).exists());
    for expected in [
        "part.conf:2:3: deny: is not understood here",
        "nginx.conf:6:18: proxy_pass: is not understood here",
        "nginx.conf:7:5: location: its paths are not understood here",
        "warning: ",
        "nginx.conf:1:1: worker_processes: is about nginx's process",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let partial = import(&[file, "--output", output, "--partial"]);
    assert_eq!(partial.status.code(), Some(2));
    let written = std::fs::read_to_string(output).unwrap();
    assert!(written.contains("# not imported: ") && !written.contains("127.0.0.1:1"), "{written}");
    let checked = binary().arg("check").arg(output).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && said.contains("/guarded/* -> 503"), "{said}");
}

#[test]
fn files_that_nobody_could_mean_end_in_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nginx.conf");
    for (text, expected) in [
        ("server { location / {".to_owned(), "the block of location has no end"),
        ("server } ".to_owned(), "server has no end"),
        (format!("server_name {};", "x".repeat(1 << 20)), "is too long"),
        ("include nginx.conf;".to_owned(), "files deep"),
        ("include nginx.conf; include nginx.conf;".to_owned(), "cannot be read"),
        ("include none.conf;".to_owned(), "none.conf cannot be read"),
        ("a_by_lua_block { } ".to_owned(), "is a block of Lua"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let ran = import(&[file.to_str().unwrap()]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(expected) && said.contains("nginx.conf:1:"), "{expected}: {said}");
    }
    let absent = import(&["/nowhere/nginx.conf"]);
    assert_eq!(absent.status.code(), Some(1));
}
