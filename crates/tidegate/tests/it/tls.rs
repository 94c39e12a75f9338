//! The built binary over TLS and HTTP/2, spoken to by curl, redis-cli and h2load; its certificates
//! rotated under it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{Tidegate, agent, binary};
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::{Certificates, Pair};

const PATIENCE: Duration = Duration::from_secs(60);

/// The environment that gives listeners this pair.
struct Secured<'a> {
    pair: &'a Pair,
    client_ca: Option<&'a Path>,
}

impl Secured<'_> {
    fn start(&self, listeners: &[&str], more: &[(&str, &str)]) -> Tidegate {
        let mut environment = Vec::new();
        for listener in listeners {
            let mut set = |name: &str, path: &Path| {
                environment.push((format!("TIDEGATE_{listener}_TLS_{name}"), path.display().to_string()));
            };
            set("CERTIFICATE", &self.pair.certificate);
            set("KEY", &self.pair.key);
            if let Some(path) = self.client_ca {
                set("CLIENT_CA", path);
            }
        }
        let own = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Tidegate::start(&[], &own.chain(more.iter().copied()).collect::<Vec<_>>())
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// curl's exit code, and what it wrote.
fn curl(certificates: &Certificates, arguments: &[&str]) -> (Option<i32>, String) {
    let authority = certificates.authority().display().to_string();
    let output =
        run("curl", &[&["--silent", "--max-time", "20", "--cacert", &authority], arguments].concat());
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const VERSION: [&str; 4] = ["--output", "/dev/null", "--write-out", "%{http_version} %{response_code}"];

#[test]
fn curl_speaks_http_2_with_prior_knowledge_and_by_alpn() {
    let certificates = Certificates::make();
    let good = |version: &str| (Some(0), format!("{version} 200"));
    let plain = Tidegate::start(&[], &[]);
    let url = plain.url("/livez");
    let ask = |options: &[&str], url: &str| curl(&certificates, &[options, &VERSION, &[url]].concat());
    assert_eq!(ask(&["--http2-prior-knowledge"], &url), good("2"));
    assert_eq!(ask(&["--http1.1"], &url), good("1.1"));
    let body =
        ["--header", "content-type: application/json", "--data", "{\"client_id\":\"a\",\"resource\":\"r\"}"];
    let (_, reply) = curl(
        &certificates,
        &[&["--http2-prior-knowledge"], &body[..], &[&plain.url("/api/v1/ratelimit")]].concat(),
    );
    assert_eq!(reply, "{\"allowed\":true,\"remaining\":99}");

    let pair = certificates.issue("server");
    let secured = Secured { pair: &pair, client_ca: None }.start(&["HTTP"], &[]);
    let url = format!("https://{}/livez", secured.http);
    assert_eq!(ask(&["--http2"], &url), good("2"));
    assert_eq!(ask(&["--http1.1"], &url), good("1.1"));
    assert_eq!(ask(&["--no-alpn"], &url), good("1.1"));
    assert_eq!(ask(&["--http2", "--tls-max", "1.2"], &url), good("2"));
    let (code, _) = ask(&["--http1.1"], &secured.url("/livez"));
    assert!(matches!(code, Some(1 | 52 | 56)), "plain text is not answered: {code:?}");
    secured.signal("TERM");
    assert!(secured.wait().status.success());
}

#[test]
fn h2load_loses_no_request_over_either() {
    let certificates = Certificates::make();
    let pair = certificates.issue("server");
    let secured = Secured { pair: &pair, client_ca: None }.start(&["HTTP"], &[]);
    let plain = Tidegate::start(&[], &[]);
    for url in [format!("https://{}/livez", secured.http), plain.url("/livez")] {
        let output = run("h2load", &["-n", "4000", "-c", "16", "-m", "8", &url]);
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(report.contains("4000 succeeded, 0 failed"), "{report}");
    }
}

#[test]
fn grpc_and_redis_clients_speak_tls() {
    let certificates = Certificates::make();
    let (pair, client) = (certificates.issue("server"), certificates.issue("client"));
    let authority = certificates.authority();
    let service = Secured { pair: &pair, client_ca: Some(&authority) }.start(&["GRPC", "RESP"], &[]);
    let identity = ["--cert", text(&client.certificate), "--key", text(&client.key)];

    let empty_message = service.path().join("message");
    fs::write(&empty_message, [0; 5]).unwrap();
    let body = format!("@{}", empty_message.display());
    let url = format!("https://{}/grpc.health.v1.Health/Check", service.grpc);
    let call = ["--header", "content-type: application/grpc", "--data-binary", &body, &url];
    let (code, reply) = curl(&certificates, &[&identity[..], &call].concat());
    assert_eq!((code, reply.as_bytes()), (Some(0), &b"\0\0\0\0\x02\x08\x01"[..]), "SERVING");
    assert_ne!(curl(&certificates, &call).0, Some(0), "not without a certificate");

    let port = service.resp.port().to_string();
    let tls = ["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", text(&authority)];
    let throttle = ["CL.THROTTLE", "user", "15", "30", "60"];
    let output = run("redis-cli", &[&tls[..], &identity, &throttle].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n16\n15\n-1\n2\n");
    let output = run("redis-cli", &[&tls[..], &throttle].concat());
    assert!(!String::from_utf8_lossy(&output.stdout).starts_with('0'), "not without a certificate");

    let wanted = [
        "tidegate_tls_handshakes_total{server=\"grpc\"} 1",
        "tidegate_tls_handshakes_total{server=\"resp\"} 1",
        "tidegate_tls_handshake_failures_total{server=\"grpc\",reason=\"client_certificate_missing\"} 1",
        "tidegate_tls_handshake_failures_total{server=\"resp\",reason=\"client_certificate_missing\"} 1",
        "tidegate_tls_last_reload_successful{server=\"grpc\"} 1",
    ];
    // A refusal is counted when the client has already heard of it.
    let start = monotonic();
    loop {
        let mut reply = agent().get(service.url("/metrics")).call().unwrap();
        let page = reply.body_mut().read_to_string().unwrap();
        let missing = wanted.iter().find(|series| !page.lines().any(|line| line == **series));
        let Some(series) = missing else { break };
        assert!(start.elapsed() < PATIENCE, "{series} is not in\n{page}");
    }
}

#[test]
fn fault_42_a_client_certificate_opens_the_listener_and_changes_nothing() {
    let certificates = Certificates::make();
    let (pair, client) = (certificates.issue("server"), certificates.issue("client"));
    let (authority, token) = (certificates.authority(), "a-token-of-some-length");
    let service = Secured { pair: &pair, client_ca: Some(&authority) }
        .start(&["HTTP"], &[("TIDEGATE_ADMIN_TOKEN", token)]);
    let url = format!("https://{}/v1/clients/a/limits", service.http);
    let put = [
        "--request",
        "PUT",
        "--header",
        "content-type: application/json",
        "--data",
        "{\"default\":{\"limit\":5}}",
    ];
    let identity = ["--cert", text(&client.certificate), "--key", text(&client.key)];
    let bearer = format!("authorization: Bearer {token}");
    let ask = |more: &[&str]| curl(&certificates, &[&put[..], more, &VERSION, &[&url]].concat());
    assert_eq!(ask(&identity), (Some(0), "2 401".to_owned()), "it is no token");
    let (code, version) = ask(&[&identity[..], &["--header", &bearer]].concat());
    assert!(code == Some(0) && version.starts_with("2 2"), "{version}");
    assert_ne!(ask(&["--header", &bearer]).0, Some(0), "a token is no certificate");
}

#[test]
fn the_name_in_a_clients_certificate_is_an_attribute() {
    let certificates = Certificates::make();
    let (pair, authority) = (certificates.issue("server"), certificates.authority());
    let file = tempfile::NamedTempFile::new().unwrap();
    let policies = r#"
        [attributes.check]
        client_id = "tls_name"
        [[policy]]
        name = "once"
        key = ["client_id"]
        limit = 1
        window_seconds = 3600
    "#;
    fs::write(file.path(), policies).unwrap();
    let service = Secured { pair: &pair, client_ca: Some(&authority) }
        .start(&["HTTP"], &[("TIDEGATE_CONFIG", text(file.path()))]);
    let url = format!("https://{}/v1/check", service.http);
    let ask = |client: &Pair, version: &str| {
        let identity = ["--cert", text(&client.certificate), "--key", text(&client.key), version];
        curl(&certificates, &[&identity[..], &VERSION, &[&url]].concat()).1
    };
    let orders = certificates.issue_named("orders", "DNS:orders.example,URI:spiffe://example/orders");
    let renewed = certificates.issue_named("renewed", "URI:spiffe://example/orders");
    let billing = certificates.issue_named("billing", "DNS:billing.example");
    assert_eq!(ask(&orders, "--http1.1"), "1.1 204");
    assert_eq!(ask(&renewed, "--http2"), "2 429", "the URI is the name, whichever certificate has it");
    assert_eq!(ask(&billing, "--http2"), "2 204");
    assert_eq!(ask(&billing, "--http1.1"), "1.1 429");
}

/// Asks until the metrics page has this line.
fn await_series(certificates: &Certificates, service: &Tidegate, series: &str) {
    let url = format!("https://{}/metrics", service.http);
    let start = monotonic();
    loop {
        let (code, page) = curl(certificates, &[&url]);
        assert_eq!(code, Some(0), "no request fails while certificates are rotated");
        if page.lines().any(|line| line == series) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{series} is not in\n{page}");
    }
}

/// The serial number of the certificate that is served.
fn serial(service: &Tidegate) -> String {
    let connect =
        format!("openssl s_client -connect {} </dev/null | openssl x509 -noout -serial", service.http);
    String::from_utf8(run("sh", &["-c", &connect]).stdout).unwrap()
}

fn serial_of(pair: &Pair) -> String {
    let output = run("openssl", &["x509", "-noout", "-serial", "-in", text(&pair.certificate)]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn fault_42_certificates_are_rotated_by_a_signal_or_by_themselves_and_bad_ones_refused() {
    let certificates = Certificates::make();
    let pair = certificates.issue("server");
    let service = Secured { pair: &pair, client_ca: None }.start(&["HTTP"], &[]);
    let reloads =
        |result, count| format!("tidegate_tls_reloads_total{{server=\"api\",result=\"{result}\"}} {count}");
    assert_eq!(serial(&service), serial_of(&pair));

    // Nothing but the files' change.
    certificates.issue("second").replace(&pair);
    await_series(&certificates, &service, &reloads("applied", 1));
    assert_eq!(serial(&service), serial_of(&pair));

    let second = serial_of(&pair);
    let good_key = fs::read(&pair.key).unwrap();
    // In one piece: half a file would be refused too, and be counted.
    fs::rename(certificates.issue("stranger").key, &pair.key).unwrap();
    await_series(&certificates, &service, &reloads("refused", 1));
    await_series(&certificates, &service, "tidegate_tls_last_reload_successful{server=\"api\"} 0");
    assert_eq!(serial(&service), second);
    fs::write(&pair.key, good_key).unwrap();
    await_series(&certificates, &service, "tidegate_tls_last_reload_successful{server=\"api\"} 1");

    certificates.expired("old").replace(&pair);
    service.signal("HUP");
    await_series(&certificates, &service, "tidegate_tls_last_reload_successful{server=\"api\"} 0");
    certificates.issue_for("third", 30).replace(&pair);
    service.signal("HUP");
    await_series(&certificates, &service, "tidegate_tls_last_reload_successful{server=\"api\"} 1");
    assert_eq!(serial(&service), serial_of(&pair));

    let (_, page) = curl(&certificates, &[&format!("https://{}/metrics", service.http)]);
    let gauge = "tidegate_tls_certificate_seconds_left{server=\"api\"} ";
    let left: u64 = page.lines().find_map(|line| line.strip_prefix(gauge)).unwrap().parse().unwrap();
    assert!((30 * 86_400 - 600..=30 * 86_400).contains(&left), "{left}");

    service.signal("TERM");
    let output = service.wait().output;
    let told =
        |words: &str| output.lines().any(|line| line.contains("certificate refused") && line.contains(words));
    assert!(told("is not the key of the certificate") && told("server.key"), "{output}");
    assert!(told("expired") && told("server.pem"), "{output}");
}

#[test]
fn fault_42_check_and_start_name_the_setting_and_the_file() {
    let certificates = Certificates::make();
    let (old, stranger) = (certificates.expired("old"), certificates.issue("stranger"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let check = |contents: &str| {
        fs::write(&file, contents).unwrap();
        let output = binary().arg("check").arg(&file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text.replace(&format!("{}:", file.display()), "t.toml:"))
    };
    let bad = format!(
        "[http]\ntls_certificate = {:?}\ntls_key = {:?}\n[grpc]\ntls_certificate = {:?}\ntls_key = {:?}\n\
         [resp]\ntls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = \"missing.pem\"\n",
        old.certificate,
        old.key,
        certificates.certificate(),
        stranger.key,
        stranger.certificate,
        stranger.key,
    );
    let (code, said) = check(&bad);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((code, lines.len()), (Some(2), 3), "{said}");
    let expected = [
        ("t.toml:2:19: http.tls_certificate: ", "old.pem holds a certificate that expired 24 h ago"),
        ("t.toml:6:11: grpc.tls_key: ", "stranger.key is not the key of the certificate in "),
        ("t.toml:10:17: resp.tls_client_ca: missing.pem ", "cannot be read: No such file"),
    ];
    for (line, (start, words)) in lines.iter().zip(expected) {
        assert!(line.starts_with(start) && line.contains(words) && line.contains("(accepted: "), "{line}");
    }
    let output = binary().args(["serve", "--config"]).arg(&file).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for (_, words) in expected {
        assert!(said.starts_with("cannot start: ") && said.contains(words), "{said}");
    }

    let (code, said) = check(&format!(
        "http.tls_key = {:?}\ngrpc.tls_client_ca = 'x'\nresp.tls_min_version = '1.3'",
        stranger.key
    ));
    assert_eq!(code, Some(2));
    assert!(said.contains("t.toml:1:16: http.tls_key: is given without http.tls_certificate"), "{said}");
    assert!(said.contains("t.toml:2:22: grpc.tls_client_ca: is given without"), "{said}");
    assert!(said.contains("t.toml:3:24: resp.tls_min_version: is given without"), "{said}");

    let good =
        format!("[http]\ntls_certificate = {:?}\ntls_key = {:?}\n", stranger.certificate, stranger.key);
    let (code, said) = check(&good);
    assert_eq!(code, Some(0));
    assert!(said.contains("warning: ") && said.contains("a certificate that expires in 2"), "{said}");
}
