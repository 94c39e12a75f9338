//! `tidegate import envoy` for a bootstrap: the example of `docs/envoy.md`, asked the same through Envoy and through Tidegate.

use super::backend::{Reply, ask, backend};
use crate::support::envoy::Envoy;
use crate::support::{Tidegate, binary};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_testkit::certificates::{Certificates, Pair};
use tidegate_testkit::free_port;

fn example() -> String {
    let page = include_str!("../../../../../docs/envoy.md");
    let after =
        page.split_once("<!-- example bootstrap of crates/tidegate/tests/it/import.rs -->").unwrap().1;
    let body = after.split_once("```yaml\n").unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

#[test]
fn routes_are_the_same_through_envoy_and_imported() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = example();
    let mut kept = Vec::new();
    for (port, name) in [(3000, "zero"), (3001, "one"), (3002, "two")] {
        let (address, hold) = backend(name);
        text = text.replace(&format!("port_value: {port}"), &format!("port_value: {}", address.port()));
        kept.push(hold);
    }
    let ports = [free_port(), free_port()];
    let [there, here] = ports.map(|port| text.replace("port_value: 8080", &format!("port_value: {port}")));
    let (theirs, ours) = (folder.path().join("envoy.yaml"), folder.path().join("bootstrap.yaml"));
    std::fs::write(&theirs, there).unwrap();
    std::fs::write(&ours, here).unwrap();
    let data = tempfile::tempdir().unwrap();
    let output = data.path().join("tidegate.toml");
    let mut import = binary();
    import.args(["import", "envoy"]).arg(&ours).arg("--output").arg(&output);
    let ran = import.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let _envoy = Envoy::start(&theirs, &[]);
    let arguments = ["--config", output.to_str().unwrap()];
    let _tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);

    let both = |path: &str, arguments: &[&str]| -> [Reply; 2] {
        ports.map(|port| ask(&format!("http://127.0.0.1:{port}{path}"), arguments))
    };
    let shop = ["-H", "Host: shop.example"];
    let asked: [(&str, &[&str], u16); 13] = [
        ("/health", &shop, 200),
        ("/old/page", &shop, 302),
        ("/users/7/orders", &shop, 200),
        ("/users/7/orders?page=2", &["-H", "Host: a.b.shop.example"], 200),
        ("/api/a/b?x=1", &shop, 200),
        ("/api/a", &["-H", "Host: shop.example", "-H", "X-Version: 2"], 200),
        ("/api/a", &["-H", "Host: shop.example", "-H", "X-Version: 3", "-H", "X-Debug: 1"], 200),
        ("/post", &["-H", "Host: shop.example", "-d", "a=b"], 200),
        ("/two", &["-H", "Host: nobody.example"], 200),
        ("/two/more", &["-H", "Host: nobody.example"], 200),
        ("/twofold", &["-H", "Host: nobody.example"], 404),
        ("/", &["-H", "Host: nobody.example"], 404),
        ("/users/7", &["-H", "Host: other.example"], 404),
    ];
    for (path, arguments, status) in asked {
        let [theirs, ours] = both(path, arguments);
        assert_eq!(theirs, ours, "Envoy's, and ours: {path} {arguments:?}");
        assert_eq!(ours.status, status, "{path} {arguments:?}");
    }
    // The weights of two servers, by both: three of four.
    let mut counts = [0, 0];
    for _ in 0..40 {
        for (count, reply) in counts.iter_mut().zip(both("/any", &shop)) {
            *count += usize::from(reply.fields["x-backend"] == "zero");
        }
    }
    assert!(counts.iter().all(|count| (25..=35).contains(count)), "{counts:?}");
    let posted = both("/post", &["-H", "Host: shop.example", "-d", "a=b"]);
    assert!(posted.iter().all(|it| it.body.as_ref().unwrap().contains("inner.example")), "{posted:?}");
}

#[test]
fn what_of_a_bootstrap_is_not_understood_is_listed_by_line_and_stays_closed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.yaml");
    let text = example()
        .replace("route: { cluster: two }", "route: { cluster: two, hash_policy: [] }")
        .replace(
            "direct_response: {",
            "typed_per_filter_config: {}\n                          direct_response: {",
        )
        .replace("stat_prefix: ingress", "stat_prefix: ingress\n                rds: {}");
    std::fs::write(&file, text).unwrap();
    let import = |arguments: &[&str]| {
        let mut command = binary();
        command.args(["import", "envoy"]).arg(&file).args(arguments).output().unwrap()
    };
    let refused = import(&[]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{said}");
    for expected in [
        "bootstrap.yaml:11:17: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.rds",
        "virtual_hosts[0].routes[0].typed_per_filter_config: is not understood here",
        "virtual_hosts[1].routes[0].route.hash_policy: is not understood here",
        "warning: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let partial = import(&["--partial"]);
    let written = String::from_utf8(partial.stdout).unwrap();
    assert_eq!(partial.status.code(), Some(2));
    // Something around all routes is not understood: all of them are closed, but for the 404 behind them.
    assert_eq!(written.matches("upstream = ").count(), 0, "{written}");
    assert_eq!(written.matches("not imported\"").count(), 8, "{written}");
}

/// Two clusters by weight, and one whose servers speak TLS and demand a certificate, with a bound that is left out.
fn weighted(share: &str, authority: &Path, client: &Pair) -> String {
    let tls = format!(
        "lb_policy: LEAST_REQUEST\n      circuit_breakers: {{ thresholds: [{{ max_requests: 100 }}] }}\n      \
         transport_socket: {{ name: envoy.transport_sockets.tls, typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: localhost, \
         common_tls_context: {{ validation_context: {{ trusted_ca: {{ filename: '{}' }} }}, \
         tls_certificates: [{{ certificate_chain: {{ filename: '{}' }}, private_key: {{ filename: '{}' }} }}] }} }} }}",
        authority.display(),
        client.certificate.display(),
        client.key.display()
    );
    let text = example()
        .replace(
            "route: { cluster: two }",
            &format!("route: {{ weighted_clusters: {{ clusters: {share} }} }}"),
        )
        .replace("lb_policy: LEAST_REQUEST", &tls);
    format!(
        "{}\n    - name: three\n      load_assignment:\n        cluster_name: three\n        endpoints:\n          \
         - lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 3003 }} }} }} }}]\n",
        text.trim_end()
    )
}

/// A server with TLS that lets nobody in without a certificate of the authority, killed when it is dropped: openssl's own.
struct TlsServer(Child);

impl TlsServer {
    fn start(at: SocketAddr, certificates: &Certificates) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-www", "-accept", &at.to_string(), "-cert"]);
        command.arg(certificates.certificate()).arg("-key").arg(certificates.key());
        command.args(["-Verify", "2", "-verify_return_error", "-CAfile"]).arg(certificates.authority());
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().unwrap_or_default();
        self.0.wait().unwrap();
    }
}

#[test]
fn clusters_by_weight_and_behind_tls_are_the_same_through_envoy_and_imported() {
    let certificates = Certificates::make();
    let folder = tempfile::tempdir().unwrap();
    let client = certificates.issue("client");
    let share = "[{ name: two, weight: 3 }, { name: three, weight: 1 }]";
    let mut text = weighted(share, &certificates.authority(), &client);
    let mut kept = Vec::new();
    for (port, name) in [(3000, "zero"), (3002, "two"), (3003, "three")] {
        let (address, hold) = backend(name);
        text = text.replace(&format!("port_value: {port}"), &format!("port_value: {}", address.port()));
        kept.push(hold);
    }
    let secure = SocketAddr::from(([127, 0, 0, 1], free_port()));
    text = text.replace("port_value: 3001", &format!("port_value: {}", secure.port()));
    let _tls = TlsServer::start(secure, &certificates);
    let ports = [free_port(), free_port()];
    let files = ["envoy.yaml", "bootstrap.yaml"].map(|name| folder.path().join(name));
    for (file, port) in files.iter().zip(ports) {
        std::fs::write(file, text.replace("port_value: 8080", &format!("port_value: {port}"))).unwrap();
    }
    let data = tempfile::tempdir().unwrap();
    let output = data.path().join("tidegate.toml");
    let ran =
        binary().args(["import", "envoy"]).arg(&files[1]).arg("--output").arg(&output).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    for expected in ["circuit_breakers: is left out", "a share of the clients goes to the second cluster"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let _envoy = Envoy::start(&files[0], &[]);
    let arguments = ["--config", output.to_str().unwrap()];
    let _tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    let both = |path: &str, arguments: &[&str]| -> [Reply; 2] {
        ports.map(|port| ask(&format!("http://127.0.0.1:{port}{path}"), arguments))
    };
    // Both know the servers by the authority, under the name that is asked for, and are known by their certificate.
    let secure = both("/users/7/orders", &["-H", "Host: shop.example"]);
    assert_eq!(secure.each_ref().map(|reply| reply.status), [200, 200], "{secure:?}");
    assert!(secure.iter().all(|reply| reply.body.as_ref().unwrap().contains("s_server")), "{secure:?}");
    // A quarter: of the requests there, of the clients here, who stay where they are.
    let mut counts = [0, 0];
    for client in 1..=80 {
        let address = format!("127.0.1.{client}");
        let arguments = ["-H", "Host: nobody.example", "--interface", &address];
        let replies = both("/two", &arguments);
        for (count, reply) in counts.iter_mut().zip(&replies) {
            assert!(["two", "three"].contains(&&*reply.fields["x-backend"]), "{reply:?}");
            *count += usize::from(reply.fields["x-backend"] == "three");
        }
        let [_, ours] = both("/two", &arguments);
        assert_eq!(ours.fields["x-backend"], replies[1].fields["x-backend"], "{address} stays");
    }
    assert!(counts.iter().all(|count| (6..=36).contains(count)), "{counts:?}");
}

#[test]
fn weights_that_say_no_share_are_listed_and_their_route_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.yaml");
    let (nowhere, largest) = (Path::new("/nowhere"), u64::MAX);
    let client = Pair { certificate: nowhere.to_owned(), key: nowhere.to_owned() };
    for (share, expected) in [
        ("[{ name: two, weight: 0 }, { name: three, weight: 0 }]".to_owned(), "no tenths of a percent"),
        ("[{ name: two, weight: 2 }, { name: three, weight: 1 }]".to_owned(), "no tenths of a percent"),
        (
            format!("[{{ name: two, weight: 1 }}, {{ name: three, weight: {largest} }}]"),
            "no tenths of a percent",
        ),
        (
            "[{ name: two, weight: -1 }, { name: three, weight: 2 }]".to_owned(),
            "one cluster is, or 2 to 20 by weight",
        ),
        ("[{ name: two, weight: 50 }]".to_owned(), "one cluster is, or 2 to 20 by weight"),
        (
            "[{ name: two, weight: 1 }, { name: nowhere, weight: 1 }]".to_owned(),
            "there is no cluster nowhere",
        ),
        ("[{ name: two, weight: 1 }, { name: two, weight: 1 }]".to_owned(), "names two twice"),
        (
            "[{ name: two, weight: 1 }, { name: three, weight: 1 }, { name: one, weight: 1 }]".to_owned(),
            "no tenths of a percent",
        ),
        ("{}".to_owned(), "one cluster is, or 2 to 20 by weight"),
    ] {
        std::fs::write(&file, weighted(&share, nowhere, &client)).unwrap();
        let ran = binary().args(["import", "envoy", "--partial"]).arg(&file).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(said.contains(expected) && ran.status.code() == Some(2), "{share}: {said}");
        let written = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(written.matches("not imported\"").count(), 1, "{share}: {written}");
        assert!(!written.contains("canary") && !written.contains("split"), "{share}: {written}");
    }
    // The same weight at both is a half, however large it is. (The file of the authority is not there.)
    let half = format!("[{{ name: two, weight: {largest} }}, {{ name: three, weight: {largest} }}]");
    let one_of_200 = "[{ name: two, weight: 199 }, { name: three, weight: 1 }]".to_owned();
    let three = "[{ name: two, weight: 5 }, { name: three, weight: 3 }, { name: one, weight: 2 }]".to_owned();
    for (share, expected) in [
        (half, "percent = 50"),
        (one_of_200, "percent = 0.5"),
        (three.clone(), "split = ["),
        (three, "percent = 20"),
    ] {
        std::fs::write(&file, weighted(&share, nowhere, &client)).unwrap();
        let ran = binary().args(["import", "envoy", "--partial"]).arg(&file).output().unwrap();
        let written = String::from_utf8(ran.stdout).unwrap();
        assert!(written.contains(expected), "{written}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn a_client_certificate_without_a_file_of_its_key_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.yaml");
    let nowhere = Path::new("/nowhere");
    let client = Pair { certificate: nowhere.to_owned(), key: "/of/the/key".into() };
    let share = "[{ name: two, weight: 1 }, { name: three, weight: 1 }]";
    let text = weighted(share, nowhere, &client).replace("filename: '/of/the/key'", "inline_string: secret");
    std::fs::write(&file, text).unwrap();
    let ran = binary().args(["import", "envoy", "--partial"]).arg(&file).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("private_key names no file") && ran.status.code() == Some(2), "{said}");
    let written = String::from_utf8(ran.stdout).unwrap();
    assert!(!written.contains("certificate_file") && !written.contains("secret"), "{written}");
}

/// The files of certificates are not there, so that the import lists them; what it makes of the rest is written.
#[test]
fn a_least_version_of_tls_is_taken_over_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.yaml");
    let nowhere = Path::new("/nowhere");
    let client = Pair { certificate: nowhere.to_owned(), key: nowhere.to_owned() };
    let share = "[{ name: two, weight: 1 }, { name: three, weight: 1 }]";
    let imported = |least: &str| {
        let params = format!("tls_params: {{ tls_minimum_protocol_version: {least} }}");
        let listener = format!(
            "- transport_socket: {{ name: envoy.transport_sockets.tls, typed_config: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, \
             common_tls_context: {{ {params}, tls_certificates: [{{ certificate_chain: {{ filename: /c.pem }}, \
             private_key: {{ filename: /c.key }} }}] }} }} }}\n          filters:"
        );
        let text = weighted(share, nowhere, &client)
            .replace("common_tls_context: {", &format!("common_tls_context: {{ {params},"))
            .replace("- filters:", &listener);
        std::fs::write(&file, text).unwrap();
        let ran = binary().args(["import", "envoy", "--partial"]).arg(&file).output().unwrap();
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    for newest in ["TLSv1_3", "4"] {
        let (written, said) = imported(newest);
        assert!(written.contains("tls_min_version = \"1.3\""), "{written}: {said}");
        assert_eq!(written.matches("min_version = \"1.3\"").count(), 2, "{written}: {said}");
        assert!(!written.contains("tls_params") && !said.contains("tls_params"), "{written}: {said}");
    }
    for default in ["TLSv1_2", "3", "TLS_AUTO", "0"] {
        let (written, said) = imported(default);
        assert!(!written.contains("min_version"), "{default}: {written}: {said}");
    }
    let (written, said) = imported("TLSv1_0");
    assert!(!written.contains("min_version"), "{written}");
    let warnings = written.matches("tls_minimum_protocol_version: has no effect").count();
    assert_eq!(warnings, 2, "{written}: {said}");
}
