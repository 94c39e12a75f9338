//! `tidegate import traefik`: the example of `docs/traefik.md`, asked the same through Traefik's own code and through Tidegate.

use std::path::Path;
use std::process::Command;

use super::backend::{Reply, ask, backend};
use crate::support::{Tidegate, binary};
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::{Server, free_port};

fn example() -> String {
    let page = include_str!("../../../../../docs/traefik.md");
    let after = page.split_once("<!-- example routers of crates/tidegate/tests/it/import.rs -->").unwrap().1;
    let body = after.split_once("```yaml\n").unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

/// The exit code, what is written and what is said of a file of this name.
fn imported(name: &str, text: &str, arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let ran = binary().args(["import", "traefik"]).arg(&file).args(arguments).output().unwrap();
    let [written, said] = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (ran.status.code().unwrap(), written, said)
}

/// The rest of a file with one router, whose service is `app`.
fn file(router: &str, middlewares: &str) -> String {
    format!(
        "http:\n  routers:\n    app: {{ {router}, service: app }}\n  middlewares: {{ {middlewares} }}\n  services:\n    \
         app: {{ loadBalancer: {{ servers: [{{ url: \"http://127.0.0.1:3000\" }}] }} }}\n"
    )
}

#[test]
fn routers_are_the_same_through_traefik_and_imported() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = example();
    let mut kept = Vec::new();
    for (port, name) in [(3000, "zero"), (3001, "one"), (3002, "two")] {
        let (address, hold) = backend(name);
        text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
        kept.push(hold);
    }
    let dynamic = folder.path().join("dynamic.yaml");
    std::fs::write(&dynamic, &text).unwrap();
    let ports = [free_port(), free_port()];
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/traefik-file");
    assert!(program.exists(), "{} is not there: run `make setup`", program.display());
    let address = format!("127.0.0.1:{}", ports[0]);
    let _traefik = Server::start(Command::new(program).arg(address).arg(&dynamic), "the file is in force");
    let (code, written, said) = imported("dynamic.yaml", &text, &[]);
    assert_eq!(code, 0, "{said}");
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("tidegate.toml");
    std::fs::write(&config, written.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", ports[1]))).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let _tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);

    let both = |path: &str, arguments: &[&str]| -> [Reply; 2] {
        ports.map(|port| ask(&format!("http://127.0.0.1:{port}{path}"), arguments))
    };
    let shop = ["-H", "Host: shop.example"];
    let with = |further: &[&'static str]| [&shop[..], further].concat();
    for (path, arguments, status) in [
        ("/orders", with(&[]), 200),
        ("/api/a/b?x=1", with(&["-H", "X-Debug: 1"]), 200),
        ("/api/a", with(&["-H", "X-Version: 2"]), 200),
        ("/api/a", with(&["-H", "X-Version: 3"]), 200),
        ("/users/7/orders", with(&[]), 200),
        ("/read/a", with(&["-H", "X-Debug: 1"]), 200),
        ("/write", with(&["-d", "a=b"]), 200),
        ("/account/7", with(&["-H", "Authorization: Bearer good", "-H", "X-User: mallory"]), 200),
        ("/inner/a", with(&[]), 403),
        ("/inner/a", with(&["--interface", "127.0.1.1"]), 200),
        ("/two/more", vec!["-H", "Host: nobody.example"], 200),
        ("/other", vec!["-H", "Host: nobody.example"], 404),
    ] {
        let [theirs, ours] = both(path, &arguments);
        if theirs.fields.get("x-backend").is_none_or(|name| name == "two") || path.starts_with("/api") {
            assert_eq!(theirs, ours, "Traefik's, and ours: {path} {arguments:?}");
        }
        assert_eq!((theirs.status, ours.status), (status, status), "{path} {arguments:?}");
    }
    let refused = both("/account/7", &shop);
    assert_eq!(refused.map(|reply| reply.status), [401, 401]);
    // `/write` by GET, and `/health`, go to one of two servers.
    for (path, host) in
        [("/write", "shop.example"), ("/health", "shop.example"), ("/two", "a.b.shop.example")]
    {
        for reply in both(path, &["-H", &format!("Host: {host}")]) {
            assert!(["zero", "one"].contains(&&*reply.fields["x-backend"]), "{path}: {reply:?}");
        }
    }
    weights_and_limits_are_the_same(&|path| both(path, &shop));
}

/// Three of four requests to the first server, and three an hour to a router with a limit.
fn weights_and_limits_are_the_same(both: &dyn Fn(&str) -> [Reply; 2]) {
    let mut counts = [0, 0];
    for _ in 0..40 {
        for (count, reply) in counts.iter_mut().zip(both("/any")) {
            *count += usize::from(reply.fields["x-backend"] == "zero");
        }
    }
    assert!(counts.iter().all(|count| (25..=35).contains(count)), "three of four, by both: {counts:?}");
    for number in 1..=5 {
        let statuses = both("/slow").map(|reply| reply.status);
        assert_eq!(statuses, if number <= 3 { [200, 200] } else { [429, 429] }, "request {number}");
    }
}

#[test]
fn what_of_a_router_is_not_understood_is_listed_by_line_and_stays_closed() {
    let text = example()
        .replace("rateLimit: {", "basicAuth: {")
        .replace("Path(`/health`)", "!Path(`/health`) && (ClientIP(`10.0.0.0/8`))")
        .replace("    rest:\n", "    rest:\n      color: red\n");
    let (code, written, said) = imported("dynamic.yaml", &text, &[]);
    assert_eq!((code, written.as_str()), (2, ""), "{said}");
    for expected in [
        "dynamic.yaml:4:7: http.routers.health.rule: at character 25 of ",
        "http.routers.rest.color: is not understood here",
        "http.middlewares.limited.basicAuth: is not understood here",
        "warning: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (code, written, _) = imported("dynamic.yaml", &text, &["--partial"]);
    assert_eq!(code, 2);
    // The rule that is not understood is 68 characters long: the two longer ones are asked before it.
    assert_eq!(written.matches("\nupstream = ").count(), 3, "{written}");
    assert_eq!(written.matches("not imported\"").count(), 7, "{written}");
}

#[test]
fn rules_and_middlewares_that_would_mean_something_else_are_listed() {
    let (any, strip) = ("rule: PathPrefix(`/`)", "m: { stripPrefix: { prefixes: [/a] } }");
    for (router, middlewares, expected) in [
        ("rule: Host(`a`", "", "at character 5 of \"Host(`a`\": a ( is not closed"),
        (
            "rule: 'Host(`a`) && HeaderRegexp(`X`, `^1`)'",
            "",
            "headerregexp with 2 arguments is not understood",
        ),
        (&*format!("{any}, middlewares: [m]"), strip, "the rule must ask for a path that has the prefix"),
        (&*format!("{any}, middlewares: [none]"), "", "there is no middleware \"none\" in this file"),
        (
            &*format!("{any}, middlewares: [m]"),
            "m: { chain: { middlewares: [m] } }",
            "m is there for the second time",
        ),
        (
            "rule: PathPrefix(`/a`), middlewares: [n, m]",
            "m: { stripPrefix: { prefixes: [/a] } }, n: { addPrefix: { prefix: /b } }",
            "behind another change of the path",
        ),
        (
            &*format!("{any}, middlewares: [m]"),
            "m: { rateLimit: { average: 1, sourceCriterion: { ipStrategy: { depth: 2 } } } }",
            "ipStrategy.depth: is not understood here",
        ),
        (
            &*format!("{any}, middlewares: [m]"),
            "m: { redirectScheme: { scheme: https } }",
            "redirect_to_https is for a whole listener",
        ),
        (&*format!("{any}, tls: {{ options: strict }}"), "", "tls.options: is not understood here"),
    ] {
        let (code, _, said) = imported("dynamic.yaml", &file(router, middlewares), &[]);
        assert_eq!(code, 2, "{router}: {said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (code, _, said) = imported("dynamic.yaml", "http:\n  routers: {{ range }}\n", &[]);
    assert_eq!(code, 2);
    assert!(said.contains("dynamic.yaml:2:12: {{ begins a template"), "{said}");
}

#[test]
fn a_router_that_would_be_asked_before_one_of_greater_priority_is_listed() {
    let text = file("rule: PathPrefix(`/a`), priority: 100", "")
        .replace("  middlewares:", "    host: { rule: Host(`a.example`), service: app }\n  middlewares:");
    let (code, written, said) = imported("dynamic.yaml", &text, &["--partial"]);
    assert_eq!(code, 2);
    assert!(said.contains("http.routers.host: would be asked before a router of greater priority"), "{said}");
    assert!(written.contains("host = [\"a.example\"]\nrespond = { body = \"not imported\""), "{written}");
}

#[test]
fn toml_is_read_as_yaml_is() {
    let toml = "[http.routers.app]\nrule = \"PathPrefix(`/a`)\"\nservice = \"app\"\nmiddlewares = [\"m\"]\n\
        [http.middlewares.m.rateLimit]\naverage = 5\nburst = 10\n\
        [[http.services.app.loadBalancer.servers]]\nurl = \"http://127.0.0.1:3000\"\n";
    let yaml =
        file("rule: PathPrefix(`/a`), middlewares: [m]", "m: { rateLimit: { average: 5, burst: 10 } }");
    let [from_toml, from_yaml] = [("d.toml", toml), ("d.yaml", yaml.as_str())].map(|(name, text)| {
        let (code, written, said) = imported(name, text, &[]);
        assert_eq!(code, 0, "{said}");
        written.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(from_toml, from_yaml);
    assert!(from_toml.contains("limit = 5\nwindow_seconds = 1\nburst = 10\nkey = [\"ip\"]"), "{from_toml}");
}

#[test]
fn services_become_splits_mirrors_and_fallbacks() {
    for (service, expected) in [
        (
            "weighted: { services: [{ name: a, weight: 3 }, { name: b }] }",
            "{ percent = 75, upstream = \"a\" }",
        ),
        (
            "mirroring: { service: a, mirrors: [{ name: b, percent: 10 }] }",
            "mirror = { percent = 10, upstream = \"b\" }",
        ),
        ("failover: { service: a, fallback: b }", "fallback = { upstream = \"b\" }"),
    ] {
        let balancers = ["a", "b"].map(|name| {
            format!(
                "    {name}: {{ loadBalancer: {{ servers: [{{ url: \"http://127.0.0.1:3000\" }}], sticky: {{ cookie: {{}} }}, \
                 healthCheck: {{ path: /up, interval: 1m30s, timeout: 500ms }} }} }}\n"
            )
        });
        let text = format!(
            "http:\n  routers:\n    app: {{ rule: Path(`/a`), service: both }}\n  services:\n    both: {{ {service} }}\n{}",
            balancers.concat()
        );
        let (code, written, said) = imported("dynamic.yaml", &text, &[]);
        assert_eq!(code, 0, "{said}");
        for expected in
            [expected, "balance = \"ring_hash\"", "interval_seconds = 90", "timeout_seconds = 0.5"]
        {
            assert!(written.contains(expected), "{expected}: {written}");
        }
    }
}

#[test]
fn certificates_and_the_way_to_https_become_listeners() {
    let certificates = Certificates::make();
    let other = certificates.issue_named("other", "DNS:other.example");
    let text = file("rule: Host(`a`), tls: {}", "https: { redirectScheme: { scheme: https } }").replace(
        "  middlewares:",
        "    plain: { rule: Host(`a`), middlewares: [https], service: noop@internal }\n  middlewares:",
    );
    let pair = |certificate: &Path, key: &Path| {
        format!("    - {{ certFile: '{}', keyFile: '{}' }}\n", certificate.display(), key.display())
    };
    let pairs = [
        pair(&certificates.certificate(), &certificates.key()),
        pair(&other.certificate, &other.key),
        "  options: { default: { minVersion: VersionTLS13 } }\n".to_owned(),
    ];
    let text = format!("{text}tls:\n  certificates:\n{}", pairs.concat());
    let (code, written, said) = imported("dynamic.yaml", &text, &[]);
    assert_eq!(code, 0, "{said}");
    for expected in [
        "listen = \"127.0.0.1:8080\"\nredirect_to_https = 443\n",
        "listen = \"127.0.0.1:8443\"\ntls_min_version = \"1.3\"\ntls_certificate = ",
        "tls_pairs = [{ certificate = ",
    ] {
        assert!(written.contains(expected), "{expected}: {written}");
    }
    assert_eq!(written.matches("[[route]]").count(), 1, "{written}");
    let asking =
        text.replace("minVersion: VersionTLS13", "clientAuth: { clientAuthType: RequireAnyClientCert }");
    let (code, written, said) = imported("dynamic.yaml", &asking, &["--partial"]);
    assert_eq!(code, 2);
    assert!(said.contains("tls.options.default.clientAuth: is not understood here"), "{said}");
    assert_eq!(written.matches("upstream = ").count(), 0, "nobody gets in unasked: {written}");
}
