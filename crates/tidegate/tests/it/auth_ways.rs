//! Routes with several ways to prove who one is, asked with every mixture of good, bad and missing credentials: keys that the service
//! issued, tokens that PyJWT signed, and certificates that curl shows.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::heads::listening;
use crate::support::issuer::{ISSUER, Issuer};
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};
use tidegate_testkit::certificates::{Certificates, Pair};

const PATIENCE: Duration = Duration::from_secs(60);

/// Each route by its path, whether any of the ways will do, and the ways.
const ROUTES: [(&str, bool, &[&str]); 5] = [
    ("key-or-token", true, &["key", "jwt"]),
    ("token-or-key", true, &["jwt", "key"]),
    ("certificate-or-key", true, &["certificate", "key"]),
    ("token-behind-certificate", false, &["certificate", "jwt"]),
    ("all-three", false, &["certificate", "key", "jwt"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Good,
    Bad,
    Twice,
}

use State::{Bad, Good, Missing, Twice};

fn file(server: &str, certificates: &Certificates) -> String {
    let pair = certificates.issue("server");
    let mut file = format!(
        "upstream = [{{ name = \"app\", servers = [{server:?}] }}]\n\
         [[gateway.listener]]\nlisten = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n\
         tls_client_ca = {:?}\ntls_client_auth = \"optional\"\n",
        pair.certificate,
        pair.key,
        certificates.authority()
    );
    for (name, is_any, ways) in ROUTES {
        let list = if is_any { "auth_any" } else { "auth_all" };
        file.push_str(&format!(
            "[[route]]\nname = {name:?}\npath = \"/{name}\"\nupstream = \"app\"\n{list} = {ways:?}\n"
        ));
        for (way, table) in [
            ("certificate", "certificate = { names = [\"*.clients.example\"] }\n".to_owned()),
            ("key", "key_in = [\"header:x-api-key\"]\n".to_owned()),
            (
                "jwt",
                format!(
                    "jwt = {{ issuer = {ISSUER:?}, audience = [\"api\"], keys_file = \"secret.json\" }}\n"
                ),
            ),
        ] {
            if ways.contains(&way) {
                file.push_str(&table);
            }
        }
    }
    file
}

/// The status that the ways give, each as it is stated, and whom the server is told of.
fn expected(is_any: bool, ways: &[(&str, State)]) -> (u16, Option<&'static str>) {
    let of = |(way, state): (&str, State)| match (way, state) {
        ("key", Good) => (200, Some("acme")),
        ("jwt", Good) => (200, Some("alice")),
        (_, Good) => (200, Some("shop.clients.example")),
        ("certificate", Bad) => (403, None),
        (_, Twice) => (400, None),
        (_, Bad | Missing) => (401, None),
    };
    if ways.iter().any(|(_, state)| *state == Twice) {
        return (400, None);
    }
    if is_any {
        let first = ways.iter().find(|(_, state)| *state != Missing);
        return first.map_or((401, None), |way| of(*way));
    }
    let refused = ways.iter().map(|way| of(*way)).find(|(status, _)| *status != 200);
    refused.or_else(|| ways.last().map(|way| of(*way))).unwrap()
}

fn status(
    service: &Tidegate,
    certificates: &Certificates,
    client: Option<&Pair>,
    path: &str,
    fields: &[String],
) -> u16 {
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "60", "--output", "/dev/null", "--write-out", "%{http_code}"]);
    command.arg("--cacert").arg(certificates.authority());
    if let Some(pair) = client {
        command.arg("--cert").arg(&pair.certificate).arg("--key").arg(&pair.key);
    }
    for field in fields {
        command.arg("--header").arg(field);
    }
    let output = command.arg(format!("https://{}/{path}", service.gateway[0])).output().unwrap();
    String::from_utf8_lossy(&output.stdout).parse().unwrap()
}

#[test]
fn fault_46_no_mixture_of_missing_and_wrong_credentials_passes_and_none_reaches_a_server() {
    let certificates = Certificates::make();
    let good = certificates.issue_named("client", "DNS:shop.clients.example");
    let other = certificates.issue_named("other", "DNS:shop.others.example");
    let mut issuer = Issuer::start();
    let (server, heads) = listening();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file(&server.to_string(), &certificates)).unwrap();
    fs::write(folder.path().join("secret.json"), issuer.keys(&["hs"])).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let issued = agent().post(service.url("/v1/keys")).send_json(json!({"consumer": "acme"})).unwrap();
    let issued: Value = issued.into_body().read_json().unwrap();
    let key = issued["key"].as_str().unwrap();
    let token = issuer.token("hs", json!({}));
    let lines = |name: &str, secret: &str, state: State| match state {
        Missing => Vec::new(),
        Good => vec![format!("{name}{secret}")],
        Bad => vec![format!("{name}{secret}x")],
        Twice => vec![format!("{name}{secret}"); 2],
    };
    for (shown, client) in [(Missing, None), (Good, Some(&good)), (Bad, Some(&other))] {
        for stated_key in [Missing, Good, Bad, Twice] {
            for stated_token in [Missing, Good, Bad, Twice] {
                let fields = [
                    lines("x-api-key: ", key, stated_key),
                    lines("authorization: Bearer ", &token, stated_token),
                ]
                .concat();
                for (path, is_any, ways) in ROUTES {
                    let state = |way: &&'static str| match *way {
                        "certificate" => (*way, shown),
                        "key" => (*way, stated_key),
                        _ => (*way, stated_token),
                    };
                    let states: Vec<_> = ways.iter().map(state).collect();
                    let (expected, consumer) = expected(is_any, &states);
                    let found = status(&service, &certificates, client, path, &fields);
                    assert_eq!(found, expected, "{path} {states:?}");
                    let Some(consumer) = consumer else { continue };
                    let head = heads.recv_timeout(PATIENCE).unwrap();
                    assert!(head.contains(&format!("x-consumer-id: {consumer}\r\n")), "{states:?}: {head}");
                    // What is no credential of the route is the application's.
                    let (is_key, is_token) = (ways.contains(&"key"), ways.contains(&"jwt"));
                    assert!(!(is_key && head.contains("x-api-key")), "{states:?}: {head}");
                    assert!(!(is_token && head.contains("authorization")), "{states:?}: {head}");
                }
            }
        }
    }
    assert!(heads.try_recv().is_err(), "what was refused has reached no server");
}

#[test]
fn a_request_without_anything_is_told_all_that_its_route_takes() {
    let certificates = Certificates::make();
    let (server, _heads) = listening();
    let folder = tempfile::tempdir().unwrap();
    let mut text = file(&server.to_string(), &certificates);
    // Without TLS, so that the heads of replies are at hand.
    let listener = text.find("[[gateway.listener]]").unwrap();
    let routes = text.find("[[route]]").unwrap();
    text.replace_range(listener..routes, "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n");
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    fs::write(folder.path().join("secret.json"), Issuer::start().keys(&["hs"])).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let key = "ApiKey in=\"header\", name=\"x-api-key\"";
    for (path, challenges) in [
        ("key-or-token", vec![key, "Bearer"]),
        ("token-or-key", vec!["Bearer", key]),
        ("certificate-or-key", vec!["Certificate", key]),
        // Where all are demanded, it is told of the first that it lacks.
        ("token-behind-certificate", vec!["Certificate"]),
    ] {
        let reply = agent().get(format!("http://{}/{path}", service.gateway[0])).call().unwrap();
        let said = reply.headers().get_all("www-authenticate").iter();
        let said: Vec<_> = said.map(|challenge| challenge.to_str().unwrap()).collect();
        assert_eq!((reply.status().as_u16(), said), (401, challenges), "{path}");
    }
    let explained = |path: &str, field: (&str, &str)| {
        let asked = agent().get(service.url(&format!("/v1/explain/route?host=a&path=/{path}")));
        let mut reply = asked.query(format!("header.{}", field.0), field.1).call().unwrap();
        reply.body_mut().read_json::<Value>().unwrap()["key"]["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(explained("key-or-token", ("x-other", "1")), "no_credential");
    assert_eq!(explained("key-or-token", ("x-api-key", "tgk_none")), "unknown_key");
    // What can be said without a connection.
    assert_eq!(explained("token-behind-certificate", ("authorization", "Bearer a")), "malformed_jwt");
    assert_eq!(
        explained("certificate-or-key", ("x-other", "1")),
        "the certificate of its connection is looked at"
    );
}

/// The key is taken off the request before the service is asked, so that it is nothing that the route's `cache_by` could see.
#[test]
fn fault_46_what_a_service_said_of_one_key_is_said_of_no_other() {
    let ((server, _heads), (judge, asked)) = (listening(), listening());
    let [server, judge] = [server, judge].map(|address| address.to_string());
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "upstream = [{{ name = \"app\", servers = [{server:?}] }}, {{ name = \"judge\", servers = [{judge:?}] }}]\n\
         gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         [[route]]\nname = \"all\"\nupstream = \"app\"\nauth_all = [\"key\", \"forward\"]\n\
         [route.forward_auth]\nupstream = \"judge\"\ntimeout_seconds = 60\n\
         cache_seconds = 3600\ncache_by = [\"header:x-api-key\"]\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let issue = |consumer: &str| {
        let issued = agent().post(service.url("/v1/keys")).send_json(json!({"consumer": consumer})).unwrap();
        let issued: Value = issued.into_body().read_json().unwrap();
        issued["key"].as_str().unwrap().to_owned()
    };
    let [one, other] = ["one", "other"].map(issue);
    for (key, is_asked) in [(&one, true), (&one, false), (&other, true), (&other, false)] {
        let url = format!("http://{}/", service.gateway[0]);
        let reply = agent().get(url).header("x-api-key", key.as_str()).call().unwrap();
        assert_eq!((reply.status().as_u16(), asked.try_recv().is_ok()), (200, is_asked), "{key}");
    }
}
