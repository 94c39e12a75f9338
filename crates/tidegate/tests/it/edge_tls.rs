//! TLS at the edge, as real clients and servers speak it: ended there, passed on, and as a health check.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::support::Tidegate;
use crate::support::edge::{connect_from, echo, free, metric, until};
use tidegate_testkit::certificates::{Certificates, Pair};

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An HTTP server without TLS whose replies say `body`.
fn stub(at: SocketAddr, body: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["stub", &at.to_string(), "--body", body]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the stub listens", || std::net::TcpStream::connect(at).is_ok());
    Running(child)
}

/// A web server with TLS: openssl's own.
fn tls_server(at: SocketAddr, certificate: &Path, key: &Path) -> Running {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-www", "-accept", &at.to_string(), "-cert"]);
    command.arg(certificate).arg("-key").arg(key);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Running(child)
}

/// `curl` for a page of the edge, which is called `localhost` and trusted by its authority.
fn curl(edge: SocketAddr, authority: &Path, more: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--cacert"]).arg(authority);
    command.args(["--resolve", &format!("localhost:{}:127.0.0.1", edge.port())]).args(more);
    command.arg(format!("https://localhost:{}/", edge.port())).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn start(file: &str) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("edge.toml"), file).unwrap();
    let own = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_EDGE_API_LISTEN", "off"),
        ("TIDEGATE_LOG_LEVEL", "debug"),
    ];
    Tidegate::start_in(data, &["--config", "edge.toml"], &own)
}

/// The serial number of the certificate that an edge shows.
fn serial(edge: SocketAddr) -> String {
    let connect = format!("openssl s_client -connect {edge} </dev/null | openssl x509 -noout -serial");
    said(&Command::new("sh").args(["-c", &connect]).output().unwrap())
}

fn serial_of(pair: &Pair) -> String {
    let mut command = Command::new("openssl");
    said(&command.args(["x509", "-noout", "-serial", "-in"]).arg(&pair.certificate).output().unwrap())
}

/// A client of openssl's that says a word each time it is told to, and hears what comes back.
struct Talking {
    process: Running,
    heard: BufReader<ChildStdout>,
}

impl Talking {
    fn start(edge: SocketAddr) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-connect", &edge.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running(command.spawn().unwrap());
        let heard = BufReader::new(process.0.stdout.take().unwrap());
        Self { process, heard }
    }

    fn is_answered(&mut self, word: &str) -> bool {
        writeln!(self.process.0.stdin.as_mut().unwrap(), "{word}").unwrap();
        let mut line = String::new();
        self.heard.read_line(&mut line).unwrap();
        line.trim_end() == word
    }
}

#[test]
fn fault_42_an_edges_certificate_is_replaced_while_connections_live_and_a_bad_one_refused() {
    let certificates = Certificates::make();
    let (edge, pair) = (free(), certificates.issue_for("edge", 30));
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_certificate = {:?}, tls_key = {:?} }}]\n\
         edge.backend = [{{ name = \"echo\", address = \"{}\", check = {{ kind = \"off\" }} }}]\n",
        pair.certificate,
        pair.key,
        echo()
    );
    let service = start(&file);
    let first = serial_of(&pair);
    assert_eq!(serial(edge), first);
    let left = || metric(&service, "tidegate_tls_certificate_seconds_left{server=\"edge[0]\"}");
    assert!((30 * 86_400 - 600..=30 * 86_400).contains(&left()), "{}", left());
    let mut client = Talking::start(edge);
    assert!(client.is_answered("before"));

    certificates.issue_for("next", 60).replace(&pair);
    let reloads = |result| format!("tidegate_tls_reloads_total{{server=\"edge[0]\",result=\"{result}\"}}");
    until("the new pair is in force", || metric(&service, &reloads("applied")) == 1);
    assert_ne!(serial_of(&pair), first);
    assert_eq!(serial(edge), serial_of(&pair));
    assert!(left() > 30 * 86_400, "{}", left());
    assert!(client.is_answered("after"), "a running connection goes on with what it began with");

    std::fs::rename(certificates.issue("stranger").key, &pair.key).unwrap();
    until("a key of another certificate is refused", || metric(&service, &reloads("refused")) >= 1);
    assert_eq!(serial(edge), serial_of(&pair));
    assert!(client.is_answered("still"));
}

/// The certificate that an edge shows who asks for a name; empty: none.
fn serial_for(edge: SocketAddr, name: &str) -> String {
    let client = format!("openssl s_client -connect {edge} -servername {name} </dev/null 2>/dev/null");
    said(
        &Command::new("sh")
            .args(["-c", &format!("{client} | openssl x509 -noout -serial")])
            .output()
            .unwrap(),
    )
}

#[test]
fn fault_42_each_server_name_has_its_own_certificate_and_one_pair_is_replaced_alone() {
    let certificates = Certificates::make();
    let issue = |file: &str, name: &str| certificates.issue_named(file, &format!("DNS:{name}.example"));
    let (shop, pay, edge) = (issue("shop", "shop"), issue("pay", "pay"), free());
    let pairs = [&shop, &pay]
        .map(|it| format!("{{ certificate = {:?}, key = {:?} }}", it.certificate, it.key))
        .join(", ");
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_pairs = [{pairs}] }}]\n\
         edge.backend = [{{ name = \"echo\", address = \"{}\", check = {{ kind = \"off\" }} }}]\n",
        echo()
    );
    let service = start(&file);
    let (of_shop, of_pay) = (serial_of(&shop), serial_of(&pay));
    let shown = || ["shop", "pay", "other"].map(|name| serial_for(edge, &format!("{name}.example")));
    assert_eq!(shown(), [of_shop.clone(), of_pay.clone(), String::new()]);
    assert_eq!(serial_for(edge, "Shop.Example."), of_shop, "as browsers ask for https://shop.example./");

    issue("next", "pay").replace(&pay);
    let reloads = |result| format!("tidegate_tls_reloads_total{{server=\"edge[0]\",result=\"{result}\"}}");
    until("the new pair is in force", || metric(&service, &reloads("applied")) == 1);
    assert_ne!(serial_of(&pay), of_pay);
    assert_eq!(shown(), [of_shop.clone(), serial_of(&pay), String::new()]);

    // A pair for the other one's name is none for this place: both stay as they are.
    let (before, refused) = (serial_of(&pay), metric(&service, &reloads("refused")));
    issue("twice", "shop").replace(&pay);
    until("two certificates of one name are refused", || metric(&service, &reloads("refused")) > refused);
    assert_eq!(shown(), [of_shop, before, String::new()]);
}

#[test]
fn a_connection_that_is_refused_before_its_app_is_known_has_a_line_that_says_why() {
    let certificates = Certificates::make();
    let [tls, named, proxied] = [free(), free(), free()];
    let file = format!(
        "[[edge.listener]]\nlisten = \"{tls}\"\ntls_certificate = {:?}\ntls_key = {:?}\n\
         [[edge.listener]]\nlisten = \"{named}\"\nserver_names = [{{ names = [\"a.example\"], app = \"a\" }}]\n\
         [[edge.listener]]\nlisten = \"{proxied}\"\nproxy_protocol_from = [\"127.0.0.1\"]\n",
        certificates.certificate(),
        certificates.key()
    );
    let service = start(&file);
    let refusals = [(tls, "handshake"), (named, "no_server_name"), (proxied, "unproxied")];
    for (listener, reason) in refusals {
        let mut client = connect_from("127.0.0.1", listener);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(!matches!(client.read_to_end(&mut Vec::new()), Ok(length) if length > 7), "an alert at most");
        let series = format!("tidegate_edge_refused_total{{listener=\"{listener}\",reason=\"{reason}\"}}");
        until("it is counted", || metric(&service, &series) == 1);
    }
    service.signal("TERM");
    let output = service.wait().output;
    for (listener, reason) in refusals {
        let is_said = |line: &str| {
            let parts = ["connection refused", &listener.to_string(), "127.0.0.1:", reason, "why"];
            parts.iter().all(|part| line.contains(part))
        };
        assert_eq!(output.lines().filter(|line| is_said(line)).count(), 1, "{reason}: {output}");
    }
}

/// At the log's default level: who asks is told to go elsewhere by nobody else.
#[test]
fn clients_that_do_not_begin_with_tls_are_said_to_need_a_listener_without_server_names() {
    let [postgres, mysql] = [free(), free()];
    let listener = |at: SocketAddr| {
        format!(
            "[[edge.listener]]\nlisten = \"{at}\"\nserver_names = [{{ names = [\"a.example\"], app = \"a\" }}]\n"
        )
    };
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("edge.toml"), listener(postgres) + &listener(mysql)).unwrap();
    let own = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", "off")];
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &own);
    let place = format!("host=127.0.0.1 port={} user=a dbname=a sslmode=require", postgres.port());
    let asked = Command::new("psql").args(["-c", "select 1", &place]).output().unwrap();
    assert!(!asked.status.success(), "{asked:?}");
    // As clients of MySQL do, it waits for its server.
    let mut waits = connect_from("127.0.0.1", mysql);
    assert_eq!(waits.read(&mut [0; 10]).unwrap_or_default(), 0);
    for at in [postgres, mysql] {
        let series = format!("tidegate_edge_refused_total{{listener=\"{at}\",reason=\"no_server_name\"}}");
        until("it is counted", || metric(&service, &series) > 0);
    }
    service.signal("TERM");
    let output = service.wait().output;
    let hints = [
        (postgres, "it speaks PostgreSQL's SSLRequest", "sslnegotiation=direct"),
        (mysql, "it has said nothing for 3 s", "MySQL"),
    ];
    for (at, why, hint) in hints {
        let parts = ["client=127.0.0.1:", &format!("listener=\"{at}\""), why, hint, "without server_names"];
        assert!(output.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{why}: {output}");
    }
}

#[test]
fn tls_ends_at_the_edge_and_its_server_names_lead_to_apps() {
    let certificates = Certificates::make();
    let (edge, web, shop) = (free(), free(), free());
    let (_web, _shop) = (stub(web, "web"), stub(shop, "shop"));
    let named = certificates.issue_named("named", "DNS:localhost,DNS:a.shop.example");
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_certificate = {:?}, tls_key = {:?}, \
         server_names = [{{ names = [\"*.shop.example\"], app = \"shop\" }}] }}]\n\
         edge.backend = [{{ name = \"web\", address = \"{web}\" }}, \
         {{ name = \"shop\", address = \"{shop}\", app = \"shop\" }}]\n",
        named.certificate, named.key
    );
    let service = start(&file);
    let authority = certificates.authority();
    for protocol in ["--tlsv1.3", "--tls-max=1.2"] {
        let output = match protocol.split_once('=') {
            Some((option, version)) => curl(edge, &authority, &[option, version]),
            None => curl(edge, &authority, &[protocol]),
        };
        assert_eq!(said(&output), "web", "{protocol}: {output:?}");
    }
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "60", "--cacert"]).arg(&authority);
    command.args(["--resolve", &format!("a.shop.example:{}:127.0.0.1", edge.port())]);
    let output = command.arg(format!("https://a.shop.example:{}/", edge.port())).output().unwrap();
    assert_eq!(said(&output), "shop", "{output:?}");
    // Who does not speak TLS, or does not trust the certificate, has no backend.
    let plain =
        Command::new("curl").args(["--silent", "--max-time", "60", &format!("http://{edge}/")]).output();
    assert!(!plain.unwrap().status.success());
    let distrusted = curl(edge, &certificates.other_authority("/CN=other"), &[]);
    assert!(!distrusted.status.success() && distrusted.stdout.is_empty(), "{distrusted:?}");
    let refused =
        metric(&service, &format!("tidegate_edge_refused_total{{listener=\"{edge}\",reason=\"handshake\"}}"));
    assert!(refused >= 1, "{refused}");
    assert_eq!(
        metric(&service, &format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"score\"}}")),
        2
    );
}

#[test]
fn a_server_name_with_its_last_dot_leads_where_it_does_without() {
    let certificates = Certificates::make();
    let (edge, web, shop) = (free(), free(), free());
    let (_web, _shop) = (stub(web, "web"), stub(shop, "shop"));
    let named = certificates.issue_named("named", "DNS:a.shop.example");
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_certificate = {:?}, tls_key = {:?}, \
         server_names = [{{ names = [\"a.shop.example\"], app = \"shop\" }}] }}]\n\
         edge.backend = [{{ name = \"web\", address = \"{web}\" }}, \
         {{ name = \"shop\", address = \"{shop}\", app = \"shop\" }}]\n",
        named.certificate, named.key
    );
    let _service = start(&file);
    // curl leaves the dot out, and browsers do not.
    for (name, app) in [("a.shop.example", "shop"), ("A.Shop.Example.", "shop"), ("b.shop.example.", "web")] {
        let client = format!("openssl s_client -quiet -connect {edge} -servername {name} 2>/dev/null");
        let request = r"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let asked = format!("printf '{request}' | {client}");
        let answer = said(&Command::new("sh").args(["-c", &asked]).output().unwrap());
        assert!(answer.ends_with(app), "{name}: {answer}");
    }
}

#[test]
fn clients_that_insist_on_a_protocol_reach_backends_that_speak_it() {
    let certificates = Certificates::make();
    let (edge, behind) = (free(), Tidegate::start(&[], &[]));
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_certificate = {:?}, tls_key = {:?}, \
         tls_alpn = [\"h2\", \"postgresql\"] }}]\n\
         edge.backend = [{{ name = \"behind\", address = \"{}\" }}]\n",
        certificates.certificate(),
        certificates.key(),
        behind.http
    );
    let _service = start(&file);
    let said_of_it = ["--http2", "--output", "/dev/null", "--write-out", "%{http_version}"];
    let output = curl(edge, &certificates.authority(), &said_of_it);
    assert_eq!(said(&output), "2", "{output:?}");
    let agreed = |protocol: &str| {
        let client = format!("openssl s_client -connect {edge} -alpn {protocol} </dev/null 2>&1");
        said(&Command::new("sh").args(["-c", &client]).output().unwrap())
    };
    assert!(agreed("postgresql").contains("ALPN protocol: postgresql"), "{}", agreed("postgresql"));
    assert!(agreed("imap").contains("no application protocol"), "{}", agreed("imap"));
}

#[test]
fn tls_is_passed_on_to_a_backend_that_a_handshake_has_found_up() {
    let certificates = Certificates::make();
    let (edge, backend) = (free(), free());
    let check = "check = { kind = \"tls\", interval_seconds = 0.1, timeout_seconds = 5, fall = 1, rise = 1 }";
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", server_names = [{{ names = [\"localhost\"], app = \"web\" }}] }}]\n\
         edge.backend = [{{ name = \"web\", app = \"web\", address = \"{backend}\", {check} }}]\n"
    );
    let service = start(&file);
    let up = || metric(&service, "tidegate_edge_backend_up{app=\"web\",region=\"\",backend=\"web\"}") == 1;
    until("nobody is there", || !up());
    let _server = tls_server(backend, &certificates.certificate(), &certificates.key());
    until("the handshake is answered", up);
    let output = curl(edge, &certificates.authority(), &[]);
    assert!(output.status.success() && said(&output).contains("s_server"), "{output:?}");
}
