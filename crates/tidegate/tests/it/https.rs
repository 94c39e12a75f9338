//! Plain HTTP is sent to `https://`, browsers are told to stay there, and a route opens to certificates that it names.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::support::{Tidegate, binary};
use serde_json::{Value, json};
use tidegate_testkit::certificates::{Certificates, Pair};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

/// A server that says in its reply's body what it was told of its client.
fn telling() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut who = "nobody".to_owned();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    if let Some(name) = line.to_lowercase().strip_prefix("x-consumer-id:") {
                        who = name.trim().to_owned();
                    }
                    if line == "\r\n" {
                        let own = "strict-transport-security: max-age=1\r\n";
                        let head = format!("HTTP/1.1 200 OK\r\n{own}content-length: {}\r\n\r\n", who.len());
                        if reader.get_mut().write_all(format!("{head}{who}").as_bytes()).is_err() {
                            return;
                        }
                        who = "nobody".to_owned();
                    }
                }
            });
        }
    });
    address
}

/// The reply of curl, head and body.
fn curl(certificates: &Certificates, pair: Option<&Pair>, url: &str, more: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--include", "--max-time", "60", "--cacert"]).arg(certificates.authority());
    if let Some(pair) = pair {
        command.arg("--cert").arg(&pair.certificate).arg("--key").arg(&pair.key);
    }
    let output = command.args(more).arg(url).output().unwrap();
    String::from_utf8(output.stdout).unwrap().to_lowercase()
}

#[test]
fn a_route_opens_to_the_certificates_that_it_names_and_others_stay_open() {
    let certificates = Certificates::make();
    let server = certificates.issue("server");
    let file = format!(
        "upstream = [{{ name = \"app\", servers = [\"{}\"] }}]\n\
         [[policy]]\nname = \"once\"\nlimit = 1\nwindow_seconds = 3600\nkey = [\"consumer\"]\n\
         [[route]]\nname = \"open\"\npath = \"/open\"\nupstream = \"app\"\n\
         [[route]]\nname = \"pay\"\npath = \"/pay\"\nupstream = \"app\"\nauth = \"certificate\"\n\
         certificate = {{ names = [\"*.clients.example\", \"spiffe://shop/*\"] }}\n\
         [[route]]\nname = \"once\"\npath = \"/once\"\nupstream = \"app\"\nauth = \"certificate\"\n\
         certificate = {{ names = [\"*\"] }}\npolicies = [\"once\"]\n\
         [[gateway.listener]]\nlisten = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n\
         tls_client_ca = {:?}\ntls_client_auth = \"optional\"\nhsts_seconds = 600\nhsts_subdomains = true\n",
        telling(),
        server.certificate,
        server.key,
        certificates.authority()
    );
    let service = start(&file);
    let ask = |pair: Option<&Pair>, path: &str, more: &[&str]| {
        curl(&certificates, pair, &format!("https://{}{path}", service.gateway[0]), more)
    };
    let status = |reply: &str| reply.split_whitespace().nth(1).map(str::to_owned).unwrap_or_default();
    let alice = certificates.issue_named("alice", "DNS:alice.clients.example");
    let pay = certificates.issue_named("pay", "URI:spiffe://shop/pay,DNS:pay.other.example");
    let other = certificates.issue_named("other", "URI:spiffe://evil/x.clients.example");
    // What a client says of itself does not count.
    let lie = ["--header", "x-consumer-id: root"];
    for protocol in ["--http1.1", "--http2"] {
        let more = [&lie[..], &[protocol]].concat();
        let open = ask(None, "/open", &more);
        assert!(status(&open) == "200" && open.ends_with("nobody"), "{open}");
        assert_eq!(open.matches("strict-transport-security: max-age=600; includesubdomains\r\n").count(), 1);
        assert!(!open.contains("max-age=1\r\n"), "{open}");
        let nameless = ask(None, "/pay", &more);
        assert!(
            status(&nameless) == "401" && nameless.contains("www-authenticate: certificate"),
            "{nameless}"
        );
        assert!(nameless.contains("strict-transport-security"), "{nameless}");
        for (pair, name) in [(&alice, "alice.clients.example"), (&pay, "spiffe://shop/pay")] {
            let admitted = ask(Some(pair), "/pay", &more);
            assert!(status(&admitted) == "200" && admitted.ends_with(name), "{admitted}");
        }
        assert_eq!(status(&ask(Some(&other), "/pay", &more)), "403");
    }
    // Each name is counted for itself.
    for (pair, expected) in [(&alice, "200"), (&other, "200"), (&alice, "429")] {
        assert_eq!(status(&ask(Some(pair), "/once", &[])), expected);
    }
    // Of another authority: the handshake fails, also where no route asks for a certificate.
    let elsewhere = Certificates::make();
    let stranger = elsewhere.issue_named("alice", "DNS:alice.clients.example");
    assert_eq!(ask(Some(&stranger), "/open", &[]), "");
}

#[test]
fn plain_http_is_sent_to_https_and_reaches_no_route() {
    let service = start(
        "access_log.to = \"access.log\"\nroute = [{ name = \"all\", respond = { body = \"a route\" } }]\n\
         [[gateway.listener]]\nlisten = \"127.0.0.1:0\"\nredirect_to_https = 8443\n",
    );
    for (request, status, location) in [
        (
            "GET /a?b=c HTTP/1.1\r\nhost: Shop.example:80\r\n",
            "308",
            "location: https://shop.example:8443/a?b=c",
        ),
        ("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n", "308", "location: https://a:8443/a"),
        ("GET / HTTP/1.0\r\n", "400", "names no host"),
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n", "501", "no path"),
    ] {
        let mut stream = TcpStream::connect(service.gateway[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = if request.starts_with("POST") { "x" } else { "" };
        stream.write_all(format!("{request}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert_eq!(reply.split(' ').nth(1), Some(status), "{request} {reply}");
        assert!(reply.contains(location) && !reply.contains("a route"), "{request} {reply}");
    }
    // They are in the access log all the same, without a query: nobody has said that there is no key in it.
    let begun = tidegate_net::clock::monotonic();
    let logged = || fs::read_to_string(service.path().join("access.log")).unwrap_or_default();
    while logged().lines().count() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{}", logged());
        std::thread::yield_now();
    }
    let first = logged().lines().next().unwrap().to_owned();
    assert!(first.contains("\"status\":308") && first.contains("\"target\":\"/a\""), "{first}");
}

#[test]
fn a_listener_shows_each_name_its_own_certificate() {
    let certificates = Certificates::make();
    let [shop, pay] =
        ["shop", "pay"].map(|name| certificates.issue_named(name, &format!("DNS:{name}.example")));
    let pairs =
        [&shop, &pay].map(|it| format!("{{ certificate = {:?}, key = {:?} }}", it.certificate, it.key));
    let file = |second: &str| {
        format!(
            "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\ntls_pairs = [{}, {second}]\nhsts_seconds = 1\n\
             [[route]]\nname = \"all\"\npath = \"/*\"\nrespond = {{ body = \"here\" }}\n",
            pairs[0]
        )
    };
    let service = start(&file(&pairs[1]));
    let port = service.gateway[0].port();
    for (host, is_shown) in [("shop.example", true), ("pay.example", true), ("other.example", false)] {
        let resolve = format!("{host}:{port}:127.0.0.1");
        let reply = curl(&certificates, None, &format!("https://{host}:{port}/"), &["--resolve", &resolve]);
        assert_eq!(reply.ends_with("here"), is_shown, "{host}: {reply}");
    }
    let page = curl(&certificates, None, &service.url("/metrics"), &[]);
    assert!(page.contains("tidegate_tls_certificate_seconds_left{server=\"gateway[0]\"}"), "{page}");
    for name in ["shop.example", "pay.example"] {
        let gauge =
            format!("tidegate_tls_certificate_name_seconds_left{{server=\"gateway[0]\",name=\"{name}\"}} ");
        let left = page.lines().find_map(|line| line.strip_prefix(&*gauge)?.parse::<u64>().ok());
        assert!(left.is_some_and(|left| left > 0), "{name}: {page}");
    }

    let said = binary().args(["certificates", "--server", &service.url("")]).output().unwrap();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let listed = said["certificates"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{said}");
    for (pair, name) in [(&shop, "shop.example"), (&pay, "pay.example")] {
        let one = listed.iter().find(|it| it["names"] == json!([name])).unwrap();
        assert_eq!((&one["origin"], &one["listeners"]), (&json!("file"), &json!(["gateway[0]"])), "{one}");
        assert_eq!(one["file"], pair.certificate.to_str().unwrap());
        let ends = one["not_after"].as_str().is_some_and(|it| it.ends_with('Z'));
        assert!(ends && one["seconds_left"].as_u64().is_some_and(|left| left > 0), "{one}");
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    fs::write(&path, file(&pairs[0].replace("key = ", "key = \"/absent\", kye = "))).unwrap();
    let check = || {
        let output = binary().arg("check").arg(&path).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(check().contains("gateway.listener[0].tls_pairs[1].kye: is not a known key"), "{}", check());
    fs::write(&path, file(&pairs[0])).unwrap();
    let said = "holds a certificate for shop.example, as does another one";
    assert!(
        check().contains("gateway.listener[0].tls_pairs[1].certificate") && check().contains(said),
        "{}",
        check()
    );
}

#[test]
fn what_does_not_go_together_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let listener = "[[gateway.listener]]\nlisten = \"127.0.0.1:8080\"\n";
    let pair = "tls_certificate = \"a\"\ntls_key = \"b\"\n";
    let route = "[[route]]\nname = \"a\"\nrespond = {}\n";
    for (file, mistake) in [
        (format!("{listener}hsts_seconds = 1\n"), "hsts_seconds: has no effect without TLS"),
        (format!("{listener}{pair}hsts_subdomains = true\n"), "hsts_subdomains: has no effect"),
        (
            format!("{listener}{pair}redirect_to_https = 443\n"),
            "redirect_to_https: stands on a listener that has TLS",
        ),
        (format!("{listener}redirect_to_https = 0\n"), "redirect_to_https: is 0"),
        (format!("{listener}{pair}tls_client_auth = \"optional\"\n"), "tls_client_auth: has no effect"),
        (
            format!("{listener}{pair}tls_client_ca = \"c\"\ntls_client_auth = \"perhaps\"\n"),
            "\"required\", \"optional\"",
        ),
        (format!("{route}auth = \"certificate\"\n"), "certificate: is missing"),
        (
            format!("{route}auth = \"certificate\"\ncertificate = {{ names = [] }}\n"),
            "names: is missing or empty",
        ),
        (format!("{route}auth = \"certificate\"\ncertificate = {{ names = [\"a*b\"] }}\n"), "is \"a*b\""),
        (format!("{route}certificate = {{ names = [\"a\"] }}\n"), "certificate: has no effect without auth"),
    ] {
        fs::write(folder.path().join("t.toml"), &file).unwrap();
        let output = binary().current_dir(folder.path()).args(["check", "t.toml"]).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success() && said.contains(mistake), "{file}: {said}");
    }
}

#[test]
fn certificates_that_servers_are_shown_are_listed_measured_and_looked_at_by_the_doctor() {
    let certificates = Certificates::make();
    let client = certificates.issue_named("client", "URI:spiffe://example/gateway");
    let old = certificates.expired("old");
    let upstream = |name: &str, pair: &Pair| {
        format!(
            "[[upstream]]\nname = \"{name}\"\nservers = [\"https://127.0.0.1:1\"]\n\
             tls = {{ certificate_file = {:?}, key_file = {:?} }}\n",
            pair.certificate, pair.key
        )
    };
    let upstreams = [upstream("a", &client), upstream("b", &client), upstream("c", &old)].concat();
    let file = format!("gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n{upstreams}");
    let service = start(&file);
    let page = || curl(&certificates, None, &service.url("/metrics"), &[]);
    let gauge = |family: &str, upstream: &str| {
        let series = format!("tidegate_upstream_certificate_{family}{{upstream=\"{upstream}\"}} ");
        page().lines().find_map(|line| line.strip_prefix(&*series)?.parse::<u64>().ok())
    };
    assert!(gauge("seconds_left", "a").is_some_and(|left| left > 0), "{}", page());
    assert_eq!(gauge("seconds_left", "c"), Some(0));
    let listed = || {
        let said = binary().args(["certificates", "--server", &service.url("")]).output().unwrap();
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        said["certificates"].as_array().unwrap().clone()
    };
    let [ended, good] = <[Value; 2]>::try_from(listed()).unwrap();
    assert_eq!((&ended["upstreams"], &ended["seconds_left"]), (&json!(["c"]), &json!(0)));
    assert_eq!((&good["upstreams"], &good["origin"]), (&json!(["a", "b"]), &json!("upstream")));
    assert_eq!(good["names"], json!(["spiffe://example/gateway"]));
    assert_eq!(good["file"], client.certificate.to_str().unwrap());
    assert!(good.get("trouble").is_none(), "{good}");

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), &file).unwrap();
    let doctor = || {
        let mut command = binary();
        command.args(["doctor", "--config", "tidegate.toml"]).current_dir(folder.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let said = doctor();
    let soon = format!("upstream \"a\": the certificate in {} ends in ", client.certificate.display());
    assert!(said.contains(&soon), "{said}");
    assert!(said.contains("upstream \"c\": the certificate in ") && said.contains(" days ago: "), "{said}");

    // A key of another pair: what is there now is refused, and told of.
    fs::copy(&old.key, &client.key).unwrap();
    let begun = tidegate_net::clock::monotonic();
    while gauge("last_reload_successful", "a") != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "{}", page());
        std::thread::yield_now();
    }
    assert_eq!(gauge("last_reload_successful", "c"), Some(1));
    let troubled = listed().into_iter().find(|it| it["file"] == good["file"]).unwrap();
    assert!(troubled["trouble"].as_str().unwrap().contains("were refused"), "{troubled}");
    let said = doctor();
    assert!(
        said.contains("upstream[0].tls.key_file") && said.contains("is no key for the certificate"),
        "{said}"
    );
}
