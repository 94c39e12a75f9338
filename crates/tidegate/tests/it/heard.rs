//! What an operator hears when something behind the gateway or the edge breaks: the log at its default level, `tidegate explain
//! route` and `tidegate explain edge`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::{Certificates, Pair};
use tidegate_testkit::free_port;
use tidegate_testkit::nginx::Nginx;

use crate::support::{Tidegate, agent, binary};

const PATIENCE: Duration = Duration::from_secs(60);

/// nginx with a certificate at its first port, and at its second one always 500.
struct Failing {
    _nginx: Nginx,
    secured: u16,
    failing: u16,
}

impl Failing {
    fn start(pair: &Pair) -> Self {
        let [secured, failing] = [free_port(), free_port()];
        let (certificate, key) = (pair.certificate.display(), pair.key.display());
        let nginx = Nginx::start(&[secured, failing], |_| {
            format!(
                "access_log off;\n\
                 server {{ listen 127.0.0.1:{secured} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
                 location / {{ return 200 \"hello\"; }} }}\n\
                 server {{ listen 127.0.0.1:{failing}; location / {{ return 500; }} }}"
            )
        });
        Self { _nginx: nginx, secured, failing }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// An upstream with one server that is checked often, and the route to it.
fn app(name: &str, server: &str, more: &str) -> String {
    format!(
        "[[upstream]]\nname = \"{name}\"\nservers = [\"{server}\"]\neject_after = 0\n{more}\n\
         [[route]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"{name}\"\n"
    )
}

fn serve(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "t.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

/// Why the only server of the route for `path` is down, or cannot be connected to.
fn because_of(service: &Tidegate, path: &str) -> Option<String> {
    let server = service.url("");
    let output =
        binary().args(["explain", "route", &format!("path={path}"), "--server", &server]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["action"]["forward"]["servers"][0]["because_of"].as_str().map(str::to_owned)
}

fn get(service: &Tidegate, path: &str) -> (u16, String) {
    let mut reply = agent().get(format!("http://{}{path}", service.gateway[0])).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

const LISTENER: &str = "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n";
const CHECK: &str = "check = { path = \"/\", interval_seconds = 0.05, timeout_seconds = 2, fall = 2 }";

#[test]
fn why_a_server_is_down_is_in_the_log_once_and_in_explanations() {
    let certificates = Certificates::make();
    let nginx = Failing::start(&certificates.issue("server"));
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let other = certificates.other_authority("/CN=other");
    let breaker =
        "breaker = { calls = 2, minimum_calls = 2, failure_percent = 100, first_open_seconds = 60 }";
    let file = [
        LISTENER.to_owned(),
        app("gone", &format!("http://127.0.0.1:{}", free_port()), CHECK),
        app("ill", &format!("http://127.0.0.1:{}", nginx.failing), CHECK),
        app(
            "silent",
            &format!("http://{silent}"),
            &CHECK.replace("timeout_seconds = 2", "timeout_seconds = 0.2"),
        ),
        app(
            "strange",
            &format!("https://127.0.0.1:{}", nginx.secured),
            &format!("{CHECK}\ntls = {{ ca_file = {other:?} }}"),
        ),
        app("open", &format!("http://127.0.0.1:{}", nginx.failing), breaker),
    ];
    let service = serve(&file.concat());
    let expected = [
        ("/gone", "its health checks fail: connection refused"),
        ("/ill", "its health checks fail: answered 500"),
        ("/silent", "its health checks fail: timed out after 200ms"),
        ("/strange", "its health checks fail: certificate: not signed by a trusted authority"),
    ];
    for (path, reason) in expected {
        until(path, || because_of(&service, path).is_some_and(|it| it.starts_with("its health checks fail")));
        assert_eq!(because_of(&service, path).as_deref(), Some(reason));
    }
    for status in [500, 500, 503, 503] {
        assert_eq!(get(&service, "/open").0, status);
    }
    assert_eq!(get(&service, "/strange").0, 502);
    service.signal("TERM");
    let log = service.wait().output;
    let count =
        |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    for (path, reason) in expected {
        let name = path.trim_start_matches('/');
        let reason = reason.trim_start_matches("its health checks fail: ");
        assert_eq!(count(&["a server is down: its health checks fail", name, reason]), 1, "{name}: {log}");
    }
    assert_eq!(
        count(&["a server's certificate is refused", "strange"]),
        1,
        "however many checks and requests: {log}"
    );
    assert_eq!(count(&["a breaker is open", "upstream", "open"]), 1, "{log}");
}

#[test]
fn why_a_backend_of_the_edge_is_down_is_in_the_text_of_an_explanation() {
    let nginx = Failing::start(&Certificates::make().issue("server"));
    let backend = |name: &str, port: u16| {
        format!(
            "[[edge.backend]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n\
             check = {{ kind = \"http\", interval_seconds = 0.1, fall = 2 }}\n"
        )
    };
    let listener = "edge.api_listen = \"off\"\n[[edge.listener]]\nlisten = \"127.0.0.1:0\"\n";
    let file = [listener.to_owned(), backend("ill", nginx.failing), backend("gone", free_port())];
    let service = serve(&file.concat());
    let server = service.url("");
    let explained = || {
        let arguments = ["explain", "edge", "--client-ip", "127.0.0.1", "--server", &server];
        String::from_utf8(binary().args(arguments).output().unwrap().stdout).unwrap()
    };
    let has = |text: &str, name: &str, reason: &str| {
        text.lines().any(|line| line.contains(name) && line.ends_with(reason))
    };
    until("both are down, each for its reason", || {
        let text = explained();
        has(&text, "ill", "its health checks fail: answered 500")
            && has(&text, "gone", "its health checks fail: connection refused")
    });
}

#[test]
fn a_breaker_that_closes_is_a_line_of_the_log() {
    let port = free_port();
    let breaker =
        "breaker = { calls = 2, minimum_calls = 2, failure_percent = 100, open_seconds = 0.01, trials = 1 }";
    let file = LISTENER.to_owned() + &app("app", &format!("http://127.0.0.1:{port}"), breaker);
    let service = serve(&file);
    for _ in 0..2 {
        assert_eq!(get(&service, "/app").0, 502);
    }
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["stub", &format!("127.0.0.1:{port}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it is let through again", || get(&service, "/app").0 == 200);
    server.kill().unwrap();
    server.wait().unwrap();
    service.signal("TERM");
    let log = service.wait().output;
    let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!((count("a breaker is open"), count("a breaker is closed")), (1, 1), "{log}");
}

/// A certificate of openssl's, which says that it is an authority's, is trusted where `ca_file` holds it, and nowhere else.
#[test]
fn a_certificate_that_a_server_signed_itself_works_as_ca_file() {
    let certificates = Certificates::make();
    let pair = certificates.self_signed("own");
    let nginx = Failing::start(&pair);
    let to = |host: &str| format!("https://{host}:{}", nginx.secured);
    let tls = |file: &Path| format!("tls = {{ ca_file = {file:?} }}");
    let file = [
        LISTENER.to_owned(),
        app("own", &to("127.0.0.1"), &tls(&pair.certificate)),
        app("named", &to("localhost"), &tls(&pair.certificate)),
        app(
            "misnamed",
            &to("127.0.0.1"),
            &format!("tls = {{ ca_file = {:?}, server_name = \"shop.example\" }}", pair.certificate),
        ),
        app("other", &to("127.0.0.1"), &tls(&certificates.authority())),
    ];
    let service = serve(&file.concat());
    for name in ["own", "named"] {
        assert_eq!(get(&service, &format!("/{name}")), (200, "hello".to_owned()), "{name}");
        assert_eq!(because_of(&service, &format!("/{name}")), None);
    }
    for (name, reason) in [
        ("misnamed", "not valid for name \"shop.example\""),
        ("other", "trusted only where ca_file holds it"),
    ] {
        assert_eq!(get(&service, &format!("/{name}")).0, 502, "{name}");
        let said = because_of(&service, &format!("/{name}")).unwrap();
        assert!(said.starts_with("certificate: ") && said.contains(reason), "{said}");
    }
}

/// A server that answers every request with these bytes, and closes the connection.
fn answers(bytes: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                line.clear();
            }
            drop(stream.write_all(bytes.as_bytes()));
        }
    });
    address.to_string()
}

#[test]
fn which_field_made_a_reply_bad_is_in_the_log_by_its_name_and_never_by_what_it_says() {
    let odd = [
        (
            "twice",
            "content-length: 987654321\r\ncontent-length: 987654321",
            "content-length is there more than once",
        ),
        ("coded", "transfer-encoding: the-secret, chunked", "transfer-encoding is not just chunked"),
        ("spaced", "content-length: 0\r\nx-token : the-secret", "malformed field line"),
    ];
    let servers = odd.map(|(_, fields, _)| answers(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")));
    let apps =
        odd.iter().zip(&servers).map(|((name, ..), server)| app(name, &format!("http://{server}"), ""));
    let service = serve(&format!("{LISTENER}{}", apps.collect::<String>()));
    for (name, ..) in odd {
        // The second one has no line: it would be the same.
        assert_eq!([0; 2].map(|_| get(&service, &format!("/{name}")).0), [502; 2], "{name}");
    }
    service.signal("TERM");
    let log = service.wait().output;
    for ((name, _, reason), server) in odd.iter().zip(&servers) {
        let lines: Vec<&str> =
            log.lines().filter(|line| line.contains("bad_reply") && line.contains(server.as_str())).collect();
        let [line] = lines[..] else { panic!("{name}: {log}") };
        assert!(line.contains(reason) && line.contains(name), "{line}");
    }
    assert!(!log.contains("the-secret") && !log.contains("987654321"), "{log}");
}

#[test]
fn where_the_store_is_and_what_it_says_is_for_those_who_may_read() {
    let secret = "the-secret-of-the-operator";
    let store = format!("redis://127.0.0.1:{}", free_port());
    let environment = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_ADMIN_TOKEN", secret),
        ("TIDEGATE_STORE", &store),
    ];
    let service = Tidegate::start_in(tempfile::tempdir().unwrap(), &[], &environment);
    let page = |token: Option<&str>| {
        let request = agent().get(service.url("/readyz?verbose"));
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        request.call().unwrap().body_mut().read_to_string().unwrap()
    };
    until("the store is missed", || page(Some(secret)).contains("\"details\""));
    for token in [None, Some("another-secret-of-nobody")] {
        let said = page(token);
        assert!(said.contains("\"degraded\""), "what is not well is no secret: {said}");
        assert!(!said.contains("details") && !said.contains("127.0.0.1"), "{said}");
    }
}
