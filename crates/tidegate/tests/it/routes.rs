//! The gateway in the file: routes, upstreams, limits and listeners of the built binary.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::edge::metric;
use crate::support::{Tidegate, agent, binary};
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{Server, free_port};

const PATIENCE: Duration = Duration::from_secs(60);

/// A backend whose replies have so many bytes, by which it is known.
struct Backend {
    address: SocketAddr,
    _process: Server,
}

impl Backend {
    fn start(body_bytes: usize) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["stub", &address, "--body-bytes", &body_bytes.to_string()]);
        let process = Server::start(&mut command, "listening on");
        Self { address: address.parse().unwrap(), _process: process }
    }
}

fn start(file: &str, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

/// Status and length of the body.
fn get(service: &Tidegate, path: &str) -> (u16, usize) {
    let mut reply = agent().get(format!("http://{}{path}", service.gateway[0])).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap().len())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn check(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, text).unwrap();
    let output = binary().arg("check").arg("tidegate.toml").current_dir(folder.path()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn routes_of_the_file_are_served_and_change_without_a_failed_request() {
    let (first, second) = (Backend::start(11), Backend::start(22));
    let file = |upstream: &Backend, more: &str| {
        let server = upstream.address;
        format!(
            "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"app\"\nservers = [\"http://{server}\"]\n\
             [[route]]\nname = \"app\"\nupstream = \"app\"\n{more}"
        )
    };
    let service = start(&file(&first, ""), &[]);
    assert_eq!(service.gateway.len(), 2);
    assert_eq!((get(&service, "/"), get(&service, "/new")), ((200, 11), (200, 11)));
    let other = agent().get(format!("http://{}/", service.gateway[1])).call().unwrap();
    assert_eq!(other.status(), 200);

    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            let url = format!("http://{}/", service.gateway[0]);
            std::thread::spawn(move || {
                let agent = agent();
                while !stop.load(Ordering::Relaxed) {
                    let mut reply = agent.get(&url).call().unwrap();
                    assert_eq!(reply.status(), 200);
                    let length = reply.body_mut().read_to_string().unwrap().len();
                    assert!(matches!(length, 11 | 22), "{length}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..10 {
        let before = asked.load(Ordering::Relaxed);
        let (backend, length) = if round % 2 == 0 { (&second, 22) } else { (&first, 11) };
        let extra =
            format!("[[route]]\nname = \"new\"\npath = \"/new\"\nrespond = {{ status = {} }}\n", 201 + round);
        fs::write(service.path().join("tidegate.toml"), file(backend, &extra)).unwrap();
        service.signal("HUP");
        until("the file is in force", || get(&service, "/new").0 == 201 + round);
        assert_eq!(get(&service, "/").1, length, "routes and upstreams change together");
        until("requests go on", || asked.load(Ordering::Relaxed) > before);
    }
    // A file with a mistake changes nothing.
    fs::write(service.path().join("tidegate.toml"), "[[route]]\nname = \"app\"\nupstream = \"gone\"\n")
        .unwrap();
    service.signal("HUP");
    let refused = || metric(&service, "tidegate_config_reloads_total{result=\"refused\"}");
    until("the file is refused", || refused() > 0);
    assert_eq!(get(&service, "/").0, 200);
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    service.signal("TERM");
    assert!(service.wait().status.success());
}

#[test]
fn a_listed_policy_limits_a_route_on_every_store_and_no_other_does() {
    let backend = Backend::start(7);
    let (redis, postgres) = (RedisServer::start(&[]), PostgresServer::start(&[]));
    let file = format!(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n\
         [[policy]]\nname = \"three\"\nlimit = 3\nwindow_seconds = 3600\nkey = [\"client_id\"]\n\
         [[policy]]\nname = \"none\"\nlimit = 0\nwindow_seconds = 60\n\
         [[policy]]\nname = \"writes\"\nlimit = 1\nwindow_seconds = 60\nmatch = {{ method = \"POST\", host = \"127.0.0.1\", route = \"limited\" }}\n\
         [attributes.gateway]\nclient_id = {{ header = \"x-api-key\" }}\n\
         [[route]]\nname = \"limited\"\npath = \"/limited\"\nupstream = \"app\"\npolicies = [\"three\", \"writes\"]\n\
         [[route]]\nname = \"rest\"\nupstream = \"app\"\n",
        backend.address
    );
    let redis = format!("redis://127.0.0.1:{}/0", redis.port);
    let postgres = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    for store in ["memory", &redis, &postgres] {
        let service = start(&file, &[("TIDEGATE_STORE", store), ("TIDEGATE_SHARED_DEADLINE", "60s")]);
        let base = format!("http://{}", service.gateway[0]);
        let ask =
            |client: &str| agent().get(format!("{base}/limited")).header("x-api-key", client).call().unwrap();
        for remaining in [2, 1, 0] {
            let reply = ask("a");
            assert_eq!(reply.status(), 200, "{store}");
            let field = |name: &str| reply.headers()[name].to_str().unwrap().to_owned();
            assert!(
                field("ratelimit").starts_with(&format!("\"three\";r={remaining}")),
                "{}",
                field("ratelimit")
            );
            assert_eq!(field("ratelimit-policy"), "\"three\";q=3;w=3600");
        }
        let mut denied = ask("a");
        assert_eq!(denied.status(), 429, "{store}");
        assert_eq!(denied.headers()["content-type"], "application/problem+json");
        let wait: u64 = denied.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((3_000..=3_600).contains(&wait), "{wait}");
        assert!(denied.headers()["ratelimit"].to_str().unwrap().starts_with("\"three\";r=0;t="));
        let problem: serde_json::Value = denied.body_mut().read_json().unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["three"]));
        assert_eq!(ask("b").status(), 200, "another client, by its header field");
        let post = || agent().post(format!("{base}/limited")).header("x-api-key", "c").send("x").unwrap();
        assert_eq!(
            (post().status().as_u16(), post().status().as_u16()),
            (200, 429),
            "{store}: by method, host and route"
        );
        // The policy "none" admits nothing, and no route lists it; the decision doors are bound by it.
        assert_eq!(get(&service, "/free"), (200, 7), "{store}");
        let decided = agent()
            .post(service.url("/v1/decisions"))
            .send_json(serde_json::json!({"attributes": {"client_id": "z"}}));
        assert_eq!(decided.unwrap().body_mut().read_json::<serde_json::Value>().unwrap()["allowed"], false);
    }
}

#[test]
fn a_store_that_is_away_degrades_proxied_replies_as_each_policy_says() {
    let backend = Backend::start(7);
    let route = |policy: &str| {
        format!(
            "[[route]]\nname = \"{policy}\"\npath = \"/{policy}\"\nupstream = \"app\"\npolicies = [\"{policy}\"]\n"
        )
    };
    let policy = |mode: &str| {
        format!(
            "[[policy]]\nname = \"{mode}\"\nlimit = 5\nwindow_seconds = 60\non_store_failure = \"{mode}\"\n"
        )
    };
    let modes = ["open", "closed", "local"];
    let file = format!(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n{}{}",
        backend.address,
        modes.map(policy).concat(),
        modes.map(route).concat()
    );
    let nobody = format!("redis://127.0.0.1:{}/0", free_port());
    let service = start(&file, &[("TIDEGATE_STORE", nobody.as_str())]);
    for (mode, status) in [("open", 200), ("closed", 429), ("local", 200)] {
        let reply = agent().get(format!("http://{}/{mode}", service.gateway[0])).call().unwrap();
        assert_eq!(reply.status(), status, "{mode}");
        assert_eq!(reply.headers()["tidegate-degraded"], mode);
    }
}

#[test]
fn mistakes_of_routes_and_listeners_have_their_lines() {
    let (code, said) = check(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:4000\"\n\
         [[gateway.listener]]\nlisten = \"nowhere\"\ntls_key = \"a\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"127.0.0.1:1\"]\nbalance = \"fair\"\n\
         [[policy]]\nname = \"slots\"\nalgorithm = \"concurrency\"\nlimit = 3\n\
         [[route]]\nname = \"a\"\nupstream = \"app\"\npolicies = [\"unknown\", \"slots\"]\n\
         [[route]]\nname = \"b\"\nupstream = \"other\"\n\
         [[route]]\nname = \"c\"\nupstream = \"app\"\nadd_prefix = 2020-01-01\n\
         [gateway]\nlisteners = 3\n",
    );
    assert_eq!(code, Some(2), "{said}");
    for line in [
        "tidegate.toml:2:10: gateway.listener[0].listen: is 127.0.0.1:4000, as is http.listen (accepted: an address of its own)",
        "tidegate.toml:4:10: gateway.listener[1].listen: is \"nowhere\" (accepted: an address and a port, as in \"127.0.0.1:8080\" or \"[::]:443\")",
        "tidegate.toml:5:11: gateway.listener[1].tls_key: is given without tls_certificate (accepted: both or neither)",
        "tidegate.toml:9:11: upstream[0].balance: is \"fair\" (accepted: \"round_robin\", \"least_requests\", \"peak_ewma\", \"ring_hash\")",
        "tidegate.toml:17:13: route[0].policies[0]: is \"unknown\", which is no policy that a route can list",
        "tidegate.toml:20:12: route[1].upstream: is \"other\", which is not the name of an upstream (accepted: app)",
        "tidegate.toml:24:14: route[2].add_prefix: is \"2020-01-01\"",
        "gateway.listeners: is not a known key",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    let (code, said) = check(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:1\"\nproxy_protocol_from = [\"10.0.0.0/8\", \"ten\"]\n",
    );
    assert_eq!(code, Some(2));
    assert!(
        said.contains("tidegate.toml:3:38: gateway.listener[0].proxy_protocol_from[1]: is \"ten\""),
        "{said}"
    );
}

#[test]
fn check_shows_the_order_of_routes_and_refuses_one_that_never_matches() {
    let upstream = "[[upstream]]\nname = \"app\"\nservers = [\"127.0.0.1:1\"]\n";
    let routes = "[[route]]\nname = \"rest\"\nupstream = \"app\"\n\
                  [[route]]\nname = \"user\"\npath = \"/users/{id}\"\nupstream = \"app\"\npolicies = [\"default\"]\n\
                  [[route]]\nname = \"shop\"\nhost = \"shop.example\"\npath = \"/old/*\"\nmethod = \"GET\"\nrespond = { status = 410 }\n";
    let (code, said) = check(&format!("{upstream}{routes}"));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        said,
        "warning: no route has an effect, since there is no [[gateway.listener]]\n\
         tidegate.toml: good (policies: 0, overrides: 0, upstreams: 1, routes: 3)\n\
         routes, the first that fits takes a request:\n\
         \u{20} shop: shop.example /old/* GET -> 410\n\
         \u{20} user: * /users/{id} -> upstream app, limited by default\n\
         \u{20} rest: * /* -> upstream app\n"
    );
    let never = "[[route]]\nname = \"again\"\npath = \"/users/{other}\"\nupstream = \"app\"\n";
    let (code, said) = check(&format!("{upstream}{routes}{never}"));
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(
        said,
        "tidegate.toml:18:1: route[3]: can never match: route \"user\" takes the same requests first \
         (accepted: another host, path, method, header, cookie or query)\n"
    );
}

#[test]
fn check_warns_of_a_route_whose_certificates_no_listener_asks_for() {
    let file = "[[upstream]]\nname = \"app\"\nservers = [\"127.0.0.1:1\"]\n\
                [[gateway.listener]]\nlisten = \"127.0.0.1:1\"\n[[route]]\nname = \"pay\"\nupstream = \"app\"\n\
                auth = \"certificate\"\ncertificate = { names = [\"*\"] }\n";
    let (code, said) = check(file);
    assert_eq!(code, Some(0), "{said}");
    let warning = "warning: route \"pay\" refuses all requests, since it demands a client certificate and no \
                   [[gateway.listener]] asks for one: set tls_client_ca\n";
    assert!(said.starts_with(warning), "{said}");
}

#[test]
fn a_listener_of_the_gateway_shows_its_certificate_and_rotates_it() {
    let certificates = Certificates::make();
    let (pair, other) = (certificates.issue("server"), certificates.issue("other"));
    let backend = Backend::start(7);
    let file = format!(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n\
         [[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n[[route]]\nname = \"app\"\nupstream = \"app\"\n",
        pair.certificate, pair.key, backend.address
    );
    let service = start(&file, &[]);
    let authority = certificates.authority().display().to_string();
    let url = format!("https://{}/", service.gateway[0]);
    for version in ["--http1.1", "--http2"] {
        let arguments = ["--silent", "--max-time", "20", "--cacert", &authority, version, &url];
        let output = Command::new("curl").args(arguments).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 7), "{version}");
    }
    let serial = || {
        let connect = service.gateway[0].to_string();
        let shown = Command::new("openssl").args(["s_client", "-connect", &connect]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    };
    let before = serial();
    assert!(before.contains("BEGIN CERTIFICATE"), "{before}");
    let body = |text: &str| text.split("-----").nth(2).map(str::to_owned);
    other.replace(&pair);
    service.signal("HUP");
    until("the new certificate is shown", || body(&serial()) != body(&before));
    let mut page = agent().get(service.url("/metrics")).call().unwrap();
    let page = page.body_mut().read_to_string().unwrap();
    assert!(page.contains("tidegate_tls_certificate_seconds_left{server=\"gateway[0]\"}"), "{page}");
    assert!(page.contains("tidegate_upstream_server_up{upstream=\"app\""), "{page}");
}

#[test]
fn an_explanation_says_which_route_and_why_not_the_others_which_limits_and_which_server() {
    let (first, second) = (Backend::start(1), Backend::start(1));
    let file = format!(
        "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"{}\", {{ url = \"http://{}\", weight = 0 }}]\n\
         [[policy]]\nname = \"three\"\nlimit = 3\nwindow_seconds = 3600\n\
         [[policy]]\nname = \"posts\"\nlimit = 3\nwindow_seconds = 3600\nmatch = {{ method = \"POST\" }}\n\
         [[route]]\nname = \"rest\"\nupstream = \"app\"\npolicies = [\"three\", \"posts\"]\n\
         [[route]]\nname = \"other\"\nhost = \"other.example\"\nupstream = \"app\"\n\
         [[route]]\nname = \"post\"\npath = \"/api/*\"\nmethod = \"POST\"\nupstream = \"app\"\n\
         [[route]]\nname = \"keyed\"\npath = \"/api/*\"\nheader = {{ x-key = \"1\" }}\nrespond = {{ status = 204 }}\n",
        first.address, second.address
    );
    let service = start(&file, &[]);
    assert_eq!(get(&service, "/").0, 200);
    let explain = |arguments: &[&str]| {
        let server = service.url("");
        let output =
            binary().args(["explain", "route"]).args(arguments).args(["--server", &server]).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), answer)
    };
    for _ in 0..2 {
        let (code, answer) =
            explain(&["host=Shop.example:80", "path=/x/../api/users?a=1", "client_ip=127.0.0.1"]);
        assert_eq!(code, Some(0), "{answer}");
        assert_eq!(
            (&answer["route"], &answer["host"], &answer["path"]),
            (&"rest".into(), &"shop.example".into(), &"/api/users".into())
        );
        let considered: Vec<(&str, Option<&str>)> = answer["considered"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (it["route"].as_str().unwrap(), it["because_of"].as_str()))
            .collect();
        assert_eq!(
            considered,
            [
                ("other", Some("host")),
                ("post", Some("method")),
                ("keyed", Some("header x-key")),
                ("rest", None)
            ]
        );
        let policies = &answer["limits"]["policies"];
        assert_eq!(
            policies[0]["verdict"]["remaining"], 1,
            "two of three are left, as if this one were spent: {answer}"
        );
        assert_eq!((&policies[1]["applies"], &policies[1]["because_of"]), (&false.into(), &"method".into()));
        let forward = &answer["action"]["forward"];
        assert_eq!((&forward["upstream"], &forward["upstream_breaker"]), (&"app".into(), &"closed".into()));
        assert_eq!(forward["next"], first.address.to_string(), "{forward}");
        assert_eq!(forward["servers"][1]["share"], 0.0, "{forward}");
        assert!(forward["servers"][0]["score"].as_f64().is_some());
    }
    let (_, answer) = explain(&["path=/api/a", "header.x-key=1"]);
    assert_eq!((&answer["route"], &answer["action"]["reply"]["status"]), (&"keyed".into(), &204.into()));
    assert_eq!(answer["considered"][3]["because_of"], "route \"keyed\" comes first");
    let (code, answer) = explain(&["path=/%2e%2e%2fa"]);
    assert_eq!((code, &answer["status"]), (Some(1), &422.into()), "{answer}");
    for wrong in ["client_ip=nobody", "pth=/", "method=G T", "path=a"] {
        assert_eq!(explain(&[wrong]).1["status"], 422, "{wrong}");
    }
    let listed =
        agent().get(service.url("/openapi.json")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(listed.contains("/v1/explain/route"));
}
