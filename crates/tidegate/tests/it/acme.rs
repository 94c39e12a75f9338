//! Certificates that are ordered of a real authority, Pebble, in each way that it asks.
//!
//! Over 400 lines because all of it goes through one authority, one gateway and one clock, which are set up here.

#[path = "support/kept.rs"]
mod kept;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support;
use crate::support::{Tidegate, agent, binary};
use kept::Kept;
use tidegate_net::clock::monotonic;
use tidegate_testkit::free_port;
use tidegate_testkit::pebble::Pebble;
use tidegate_testkit::postgres::PostgresServer;

const PATIENCE: Duration = Duration::from_secs(180);

const NAME: &str = "shop.example";

/// The settings of ACME for a directory.
fn acme(pebble: &Pebble, names: &str, challenge: &str) -> String {
    format!(
        "[acme]\nnames = {names}\ndirectory = {:?}\nca_file = {:?}\nagree_to_terms = true\n\
         contact = [\"ops@shop.example\"]\nchallenge = {challenge:?}\n",
        pebble.directory(),
        pebble.directory_authority()
    )
}

/// A gateway with a plain listener on `http` that redirects, and a TLS listener on `tls`.
fn gateway(http: u16, tls: u16) -> String {
    format!(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:{http}\"\nredirect_to_https = {tls}\n\
         [[gateway.listener]]\nlisten = \"127.0.0.1:{tls}\"\ntls_acme = true\n\
         [[route]]\nname = \"all\"\nrespond = {{ body = \"hello\" }}\n"
    )
}

fn start_in(folder: tempfile::TempDir, file: &str, environment: &[(&str, &str)]) -> Tidegate {
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

fn start(file: &str) -> Tidegate {
    start_in(tempfile::tempdir().unwrap(), file, &[])
}

/// The body that curl gets for `name` at `address`, if the certificate leads to `root`.
fn curl(name: &str, address: SocketAddr, root: &Path) -> Option<String> {
    get(name, address, root, "/")
}

/// The same for a path.
fn get(name: &str, address: SocketAddr, root: &Path, path: &str) -> Option<String> {
    let output = Command::new("curl")
        .args(["--silent", "--fail", "--max-time", "60", "--noproxy", "*", "--cacert"])
        .arg(root)
        .arg("--resolve")
        .arg(format!("{name}:{}:127.0.0.1", address.port()))
        .arg(format!("https://{name}:{}{path}", address.port()))
        .output()
        .unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// The certificate that is shown for `name`, in PEM; empty: none is.
fn shown(name: &str, address: SocketAddr) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-servername", name, "-connect", &address.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let certificate = text.split_once("-----BEGIN CERTIFICATE-----");
    certificate.and_then(|(_, rest)| Some(rest.split_once("-----END")?.0.to_owned())).unwrap_or_default()
}

/// Waits until `is_so`.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = monotonic();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it is never so: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Waits until `name` has a certificate of `root` at the second listener. If it never has, the service says why.
fn wait_for_certificate(service: &Tidegate, name: &str, root: &Path) {
    let start = monotonic();
    while curl(name, service.gateway[1], root).as_deref() != Some("hello") {
        assert!(start.elapsed() < PATIENCE, "{name}: {}", page(service, "/readyz?verbose"));
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn page(service: &Tidegate, path: &str) -> String {
    agent().get(service.url(path)).call().unwrap().body_mut().read_to_string().unwrap()
}

/// The value of a series on the metrics page.
fn metric(service: &Tidegate, series: &str) -> u64 {
    let page = page(service, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
}

#[test]
fn a_name_is_proved_by_http_and_its_certificate_survives_a_restart() {
    let (http, tls) = (free_port(), free_port());
    let pebble = Pebble::start(http, tls);
    let root = pebble.root("root.pem");
    let file = acme(&pebble, "[\"Shop.Example\", \"www.shop.example\"]", "http-01") + &gateway(http, tls);
    let service = start(&file);
    let secure = service.gateway[1];
    for name in [NAME, "www.shop.example"] {
        wait_for_certificate(&service, name, &root);
    }
    assert_eq!(shown("other.example", secure), "", "a name that nobody has ordered");
    let left = metric(&service, "tidegate_acme_certificate_seconds_left{name=\"shop.example\"}");
    assert!((89 * 86_400..=90 * 86_400).contains(&left), "{left}");
    assert_eq!(metric(&service, "tidegate_acme_orders_total{result=\"issued\"}"), 2);
    assert_eq!(metric(&service, "tidegate_acme_orders_total{result=\"failed\"}"), 0);
    assert!(!page(&service, "/readyz?verbose").contains("degraded"));
    let listed = binary().args(["certificates", "--server", &service.url("")]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for said in ["\"names\":[\"shop.example\"]", "\"names\":[\"www.shop.example\"]", "\"origin\":\"acme\""] {
        assert!(listed.contains(said), "{listed}");
    }
    assert!(
        listed.contains("\"listeners\":[\"gateway[1]\"]") && listed.contains(&pebble.directory()),
        "{listed}"
    );
    // A path like an authority's is redirected as any other, unless an order waits for it.
    let url = format!("http://{}/.well-known/acme-challenge/x", service.gateway[0]);
    let config = ureq::Agent::config_builder().max_redirects(0).http_status_as_error(false).build();
    let asked = ureq::Agent::from(config).get(&url).header("host", NAME).call().unwrap();
    assert_eq!(asked.status().as_u16(), 308);

    // Nothing that the admin API shows has a key in it.
    for path in ["/v1/audit", "/v1/settings", "/v1/certificates", "/v1/routes", "/metrics", "/readyz?verbose"]
    {
        let text = page(&service, path);
        assert!(!text.contains("PRIVATE KEY") && !text.contains("key_pkcs8"), "{path}: {text}");
    }
    let before = shown(NAME, secure);
    service.signal("TERM");
    let (folder, ended) = service.wait_keeping_data();
    assert!(!ended.output.contains("PRIVATE KEY"), "{}", ended.output);
    let files = fs::read_dir(folder.path().join("tidegate-data")).unwrap();
    let mut stored = files.map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default());
    let has_key = |bytes: Vec<u8>| bytes.windows(11).any(|part| part == b"PRIVATE KEY");
    assert!(stored.any(has_key), "the keys are in the data directory");

    let service = start_in(folder, &file, &[]);
    assert_eq!(shown(NAME, service.gateway[1]), before, "at once, and the same");
    assert_eq!(metric(&service, "tidegate_acme_orders_total{result=\"issued\"}"), 0);

    // Another authority, which is away: what there is is shown until it has issued one.
    service.signal("TERM");
    let (folder, _) = service.wait_keeping_data();
    let mut other = Pebble::start(http, tls);
    other.kill();
    let file = acme(&other, "[\"shop.example\"]", "http-01") + &gateway(http, tls);
    let service = start_in(folder, &file, &[]);
    assert_eq!(shown(NAME, service.gateway[1]), before);
    other.start_again();
    let root = other.root("root.pem");
    let secure = service.gateway[1];
    wait_until("the other's is shown", || curl(NAME, secure, &root).as_deref() == Some("hello"));
}

#[test]
fn a_name_is_proved_by_tls_at_the_gateway_and_at_the_edge() {
    let (tls, edge) = (free_port(), free_port());
    let gateway_pebble = Pebble::start(free_port(), tls);
    let root = gateway_pebble.root("root.pem");
    let file = acme(&gateway_pebble, "[\"shop.example\"]", "tls-alpn-01")
        + &format!(
            "[[gateway.listener]]\nlisten = \"127.0.0.1:{tls}\"\ntls_acme = true\n\
             [[route]]\nname = \"all\"\nrespond = {{ body = \"hello\" }}\n"
        );
    let service = start(&file);
    let secure = service.gateway[0];
    wait_until("the gateway shows it", || curl(NAME, secure, &root).as_deref() == Some("hello"));

    let edge_pebble = Pebble::start(free_port(), edge);
    let root = edge_pebble.root("root.pem");
    let backend = format!("127.0.0.1:{}", service.http.port());
    let file = acme(&edge_pebble, "[\"shop.example\"]", "tls-alpn-01")
        + &format!(
            "[[edge.listener]]\nlisten = \"127.0.0.1:{edge}\"\ntls_acme = true\n\
             [[edge.backend]]\nname = \"a\"\naddress = {backend:?}\n"
        );
    let own = [("TIDEGATE_EDGE_API_LISTEN", "off")];
    let _edge = start_in(tempfile::tempdir().unwrap(), &file, &own);
    let at_edge = SocketAddr::from(([127, 0, 0, 1], edge));
    wait_until("the edge shows it", || get(NAME, at_edge, &root, "/livez").as_deref() == Some("alive\n"));
    assert_ne!(shown(NAME, at_edge), shown(NAME, secure));
}

#[test]
fn nodes_share_a_certificate_and_answer_the_authority_for_one_another() {
    let mut server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let environment = [("TIDEGATE_CONTROL", url.as_str())];
    let [http, tls, other_http, other_tls] = [(); 4].map(|()| free_port());
    // The authority asks the first node, and the second one begins the order.
    let pebble = Pebble::start(http, tls);
    let root = pebble.root("root.pem");
    let settings = acme(&pebble, "[\"shop.example\"]", "http-01");
    pebble.freeze();
    let second = tempfile::tempdir().unwrap();
    let second = start_in(second, &(settings.clone() + &gateway(other_http, other_tls)), &environment);
    let begun =
        "SELECT count(*) FROM tidegate_secrets.secret WHERE name LIKE 'acme-certificate shop.example %'";
    wait_until("the second one has the lease", || server.sql(begun).trim() == "1");
    let file = settings + &gateway(http, tls);
    let first = start_in(tempfile::tempdir().unwrap(), &file, &environment);
    pebble.thaw();
    for node in [&first, &second] {
        let secure = node.gateway[1];
        wait_until("a node shows it", || curl(NAME, secure, &root).as_deref() == Some("hello"));
    }
    let certificate = shown(NAME, first.gateway[1]);
    assert_eq!(shown(NAME, second.gateway[1]), certificate, "one order for both");
    let issued = "tidegate_acme_orders_total{result=\"issued\"}";
    assert_eq!(metric(&first, issued) + metric(&second, issued), 1);
    assert!(!page(&first, "/v1/audit").contains("PRIVATE KEY"));

    // A node that starts without the database has its copy.
    let copy = first.path().join("tidegate-data/secrets-copy.json");
    wait_until("there is a copy", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("PRIVATE KEY"))
    });
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    first.signal("TERM");
    let (folder, _) = first.wait_keeping_data();
    server.crash();
    let first = start_in(folder, &file, &environment);
    assert_eq!(shown(NAME, first.gateway[1]), certificate);
}

/// A service with a certificate, whose civil time the test sets.
struct Served {
    pebble: Pebble,
    root: PathBuf,
    service: Tidegate,
    secure: SocketAddr,
    /// The certificate, and a connection on which it was shown.
    first: String,
    kept: Kept,
    clock: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let (http, tls) = (free_port(), free_port());
        let pebble = Pebble::start(http, tls);
        let root = pebble.root("root.pem");
        let folder = tempfile::tempdir().unwrap();
        let clock = folder.path().join("clock");
        support::set_clock(&clock, "+0");
        let (library, path) = (support::faketime(), clock.to_str().unwrap().to_owned());
        let environment = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &path),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let file = acme(&pebble, "[\"shop.example\"]", "http-01") + &gateway(http, tls);
        let service = start_in(tempfile::tempdir().unwrap(), &file, &environment);
        let secure = service.gateway[1];
        wait_for_certificate(&service, NAME, &root);
        let first = shown(NAME, secure);
        let mut kept = Kept::connect(NAME, secure);
        assert!(kept.ask(NAME).ends_with("hello"));
        Self { pebble, root, service, secure, first, kept, clock, _folder: folder }
    }

    fn failures(&self) -> u64 {
        metric(&self.service, "tidegate_acme_failures{name=\"shop.example\"}")
    }

    /// Sets the civil time so many days ahead, and waits for an order that fails.
    fn fails_at(&self, day: &str) {
        let before = self.failures();
        support::set_clock(&self.clock, day);
        wait_until("it fails", || self.failures() > before);
        assert!(self.failures() <= before + 2, "{day}: {before}, then {}", self.failures());
    }
}

#[test]
fn fault_42_an_authority_that_is_away_when_a_certificate_is_due() {
    let mut served = Served::start();
    served.pebble.kill();
    served.fails_at("+61d");
    let ready = page(&served.service, "/readyz?verbose");
    assert!(
        ready.contains("\"ready\":true")
            && ready.contains("certificates cannot be had, or not yet: what is in force is shown")
            && ready.contains("shop.example: the directory cannot be used")
            && ready.contains("its certificate is good for"),
        "{ready}"
    );
    let Served { mut pebble, root, service, secure, first, mut kept, clock: _clock, _folder } = served;
    assert_eq!(shown(NAME, secure), first);
    assert_eq!(curl(NAME, secure, &root).as_deref(), Some("hello"));
    assert!(kept.ask(NAME).ends_with("hello"));

    // It has forgotten the account, and has another root.
    pebble.start_again();
    let root = pebble.root("root-2.pem");
    wait_until("it is renewed", || curl(NAME, secure, &root).as_deref() == Some("hello"));
    assert_ne!(shown(NAME, secure), first);
    wait_until("nothing is wrong", || !page(&service, "/readyz?verbose").contains("degraded"));
    assert_eq!(metric(&service, "tidegate_acme_orders_total{result=\"issued\"}"), 2);
    assert!(kept.ask(NAME).ends_with("hello"), "connections live on");
    service.signal("TERM");
    let output = service.wait().output;
    assert!(output.contains("no certificate was issued: the one in force stays"), "{output}");
}

/// Past the certificate's end: an order for each time that the clock gives a reason for one, and hardly more.
#[test]
fn fault_42_an_authority_that_is_away_for_a_month() {
    let mut served = Served::start();
    served.pebble.kill();
    for day in ["+61d", "+66d", "+71d", "+76d", "+81d", "+86d", "+92d"] {
        served.fails_at(day);
    }
    let failures = served.failures();
    assert!((7..=14).contains(&failures), "{failures}");
    assert!(metric(&served.service, "tidegate_acme_orders_total{result=\"failed\"}") >= failures);
    let ready = page(&served.service, "/readyz?verbose");
    assert!(ready.contains("its certificate has ended, and is shown all the same"), "{ready}");
    assert_eq!(shown(NAME, served.secure), served.first, "a client judges it by its own clock");
    assert!(served.kept.ask(NAME).ends_with("hello"));
}

#[test]
fn fault_42_an_authority_that_refuses_is_not_asked_again_at_once() {
    let (http, tls) = (free_port(), free_port());
    let pebble = Pebble::start(http, tls);
    let file = acme(&pebble, "[\"blocked.example\"]", "http-01") + &gateway(http, tls);
    let service = start(&file);
    let failures = "tidegate_acme_failures{name=\"blocked.example\"}";
    wait_until("it is refused", || metric(&service, failures) == 1);
    let ready = page(&service, "/readyz?verbose");
    assert!(
        ready.contains("blocked.example: the authority refuses") && ready.contains("no certificate"),
        "{ready}"
    );
    assert_eq!(shown("blocked.example", service.gateway[1]), "");
    // A process that starts again and again does not use up what the authority allows.
    service.signal("KILL");
    let (folder, _) = service.wait_keeping_data();
    let service = start_in(folder, &file, &[]);
    assert_eq!(metric(&service, failures), 1);
    assert!(page(&service, "/readyz?verbose").contains("tried again in"));
    assert_eq!(metric(&service, "tidegate_acme_orders_total{result=\"failed\"}"), 0);
}

#[test]
fn what_cannot_be_ordered_or_shown_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    let plain = "[[gateway.listener]]\nlisten = \"127.0.0.1:1\"\n";
    let secure = "[[gateway.listener]]\nlisten = \"127.0.0.1:2\"\ntls_acme = true\n";
    let names = "[acme]\nnames = [\"a.example\"]\n";
    let agreed = "agree_to_terms = true\n";
    for (file, problem) in [
        (
            format!("{names}{agreed}{plain}"),
            "acme.names: are ordered, and no listener shows their certificates",
        ),
        (format!("{names}{plain}{secure}"), "acme.agree_to_terms: is false, and there are acme.names"),
        (
            format!("{names}{agreed}{secure}"),
            "acme.challenge: is \"http-01\", and no listener can answer that",
        ),
        (secure.to_owned(), "gateway.listener[0].tls_acme: is true, and acme.names is empty"),
        (
            "[[edge.listener]]\nlisten = \"127.0.0.1:2\"\ntls_acme = true\n".to_owned(),
            "edge.listener[0].tls_acme: is true, and acme.names is empty",
        ),
        (format!("[acme]\nnames = [\"*.example\"]\n{agreed}{plain}{secure}"), "acme.names: is \"*.example\""),
        (
            format!("[acme]\ndirectory = \"http://ca.example\"\n{plain}"),
            "acme.directory: is \"http://ca.example\"",
        ),
        (
            format!("{names}{agreed}ca_file = \"/nowhere\"\n{plain}{secure}"),
            "acme.ca_file: No such file or directory",
        ),
        (
            format!("{names}{agreed}ca_file = {path:?}\n{plain}{secure}"),
            "acme.ca_file: holds no certificate in PEM",
        ),
    ] {
        fs::write(&path, &file).unwrap();
        let output = binary().arg("check").arg(&path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{file}: {text}");
        assert!(text.contains(problem), "{file}: {text}");
    }
    fs::write(&path, format!("{names}{agreed}{plain}{secure}")).unwrap();
    let output = binary().arg("check").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
