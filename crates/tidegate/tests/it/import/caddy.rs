//! `tidegate import caddy`: the example of `docs/caddy.md`, asked the same through Caddy and through Tidegate.

use std::path::Path;
use std::process::Output;

use super::backend::{Reply, ask, backend};
use crate::deploy::caddy;
use crate::support::{Tidegate, binary};
use tidegate_testkit::free_port;

fn example() -> String {
    let page = include_str!("../../../../../docs/caddy.md");
    let after = page.split_once("<!-- example site of crates/tidegate/tests/it/import.rs -->").unwrap().1;
    let body = after.split_once("```text\n").unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

/// Imports a file with this text.
fn import(folder: &Path, text: &str, arguments: &[&str]) -> Output {
    let file = folder.join("Caddyfile.imported");
    std::fs::write(&file, text).unwrap();
    binary().args(["import", "caddy"]).arg(&file).args(arguments).output().unwrap()
}

/// What an import without mistakes writes.
fn written(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let ran = import(folder.path(), text, &[]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{text}: {said}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The route of an import with this path, from its first key on.
fn route_of<'w>(written: &'w str, path: &str) -> &'w str {
    let path = format!("path = \"{path}\"\n");
    let mut routes = written.split("[[route]]\n").skip(1);
    routes.find(|route| route.contains(&path)).unwrap_or_else(|| panic!("{path}: {written}"))
}

/// The reply without the name of the server that gave it: of two by turns, any.
fn whichever(mut reply: Reply) -> Reply {
    reply.fields.remove("x-backend");
    for name in ["zero ", "two "] {
        if let Some(rest) = reply.body.as_ref().and_then(|body| body.strip_prefix(name)).map(str::to_owned) {
            reply.body = Some(rest);
        }
    }
    reply
}

#[test]
fn sites_are_the_same_through_caddy_and_imported() {
    let mut text = example();
    let mut kept = Vec::new();
    for (port, name) in [("127.0.0.1:3000", "zero"), ("127.0.0.1:3001", "one"), (":3002}", "two")] {
        let (address, hold) = backend(name);
        let there = if port.ends_with('}') { format!(":{}}}", address.port()) } else { address.to_string() };
        assert!(text.contains(port), "{port}");
        text = text.replace(port, &there);
        kept.push(hold);
    }
    let ports = [free_port(), free_port()];
    let [there, here] = ports.map(|port| text.replace(":8080", &format!(":{port}")));
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = data.path().join("tidegate.toml");
    let ran = import(folder.path(), &here, &["--output", output.to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let _caddy = caddy(folder.path(), &there);
    let arguments = ["--config", output.to_str().unwrap()];
    let _tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);

    let both = |host: &str, path: &str, further: &[&str]| -> [Reply; 2] {
        let host = format!("Host: {host}");
        let arguments = [&["-H", host.as_str()], further].concat();
        ports.map(|port| whichever(ask(&format!("http://127.0.0.1:{port}{path}"), &arguments)))
    };
    let (shop, app) = ("shop.example", "app.example");
    let good = ["-H", "Authorization: Bearer good", "-H", "X-User: root"];
    let asked: [(&str, &str, &[&str], u16); 18] = [
        (shop, "/", &[], 200),
        (shop, "/cart?item=1&item=2", &[], 200),
        ("WWW.shop.example", "/a%20b/c", &[], 200),
        (shop, "/apix", &[], 200),
        (shop, "/api/users?x=1", &["-H", "Cookie: a=b"], 200),
        (shop, "/api/", &[], 200),
        (shop, "/api/post", &["-d", "a=b"], 200),
        (shop, "/api/orders/7", &[], 200),
        (shop, "/api/orders/7", &["-d", "a=b"], 403),
        (shop, "/orders/7", &["-X", "PUT"], 403),
        (shop, "/orders/7", &["-X", "DELETE"], 200),
        (shop, "/old/a", &[], 301),
        (shop, "/old/a", &["-d", "a=b"], 301),
        (shop, "/moved/a%20b?c=d", &[], 302),
        (shop, "/health", &[], 200),
        (app, "/v1/a", &good, 200),
        (app, "/v1x", &good, 200),
        (app, "/any", &good, 200),
    ];
    for (host, path, further, status) in asked {
        let [theirs, ours] = both(host, path, further);
        assert_eq!(theirs, ours, "Caddy's, and ours: {host} {path} {further:?}");
        assert_eq!(ours.status, status, "{host} {path} {further:?}");
    }
    let [_, admitted] = both(app, "/v1/a", &good);
    let body = admitted.body.unwrap();
    assert!(body.contains("GET /v2/v1/a\n") && body.contains("\"x-user\": \"alice\""), "{body}");
    let refused = both(app, "/v1/a", &["-H", "Authorization: Bearer bad"]);
    assert_eq!(refused.map(|reply| reply.status), [401, 401]);
}

#[test]
fn what_is_not_understood_is_listed_by_line_and_what_it_could_be_for_stays_closed() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\n\torder replace after encode\n}\na.example:80 {\n\tbasic_auth {\n\t\tme x\n\t}\n\treverse_proxy :1\n}\n\
        b.example:80 {\n\t@in remote_ip 10.0.0.0/8\n\thandle /open {\n\t\trespond \"open\"\n\t}\n\t\
        respond @in 403\n\tfile_server\n}\nc.example:80 {\n\treverse_proxy :{$NOT_SET_ANYWHERE}\n\tlog\n}\n";
    let refused = import(folder.path(), text, &[]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{said}");
    for expected in [
        "imported:2:2: order: is not understood here",
        "imported:5:2: basic_auth: is not understood here",
        "imported:11:2: remote_ip: is not understood here",
        "imported:16:2: file_server: is not understood here",
        "imported:19:1: {$NOT_SET_ANYWHERE}: is not in the environment",
        "warning: ",
        "imported:20:2: log: has no effect",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // Without the order, which is for all: the one site that is understood is open, and one path of another.
    let text = text.replace("\torder replace after encode\n", "").replace("{$NOT_SET_ANYWHERE}", "2");
    let partial = import(folder.path(), &text, &["--partial"]);
    let written = String::from_utf8(partial.stdout).unwrap();
    assert_eq!(partial.status.code(), Some(2));
    assert_eq!(written.matches("upstream = ").count(), 1, "{written}");
    assert!(route_of(&written, "/open").contains("\"open\""), "{written}");
    assert_eq!(written.matches("not imported\"").count(), 2, "{written}");

    for (text, expected) in [
        ("a {\n\trespond x\n", ":1:1: the block of \"a\" has no end"),
        ("a {\n\trespond <<E\nx\nE\n}\n", ":2:10: is a heredoc"),
    ] {
        let refused = import(folder.path(), text, &["--partial"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_guard_for_a_part_of_the_paths_is_in_force_there_whatever_answers() {
    let written = written(
        "http://a.example\nforward_auth /admin/* 127.0.0.1:1 {\n\turi /check\n}\n\
         respond /admin/ping \"pong\"\nreverse_proxy 127.0.0.1:2\n",
    );
    for (path, is_guarded) in [("/admin/ping", true), ("/admin/*", true)] {
        assert_eq!(route_of(&written, path).contains("auth = \"forward\""), is_guarded, "{path}: {written}");
    }
    assert_eq!(written.matches("auth = \"forward\"").count(), 2, "{written}");
    assert_eq!(written.matches("[[route]]").count(), 3, "{written}");
}

#[test]
fn where_tidegate_would_ask_another_route_first_the_requests_of_both_have_their_own() {
    // Caddy asks redir before reverse_proxy, although the path of the latter is longer.
    let written = written(
        "http://a.example {\n\t@write method POST\n\tredir @write https://b.example{uri} 307\n\t\
         reverse_proxy /api/* 127.0.0.1:1\n\treverse_proxy 127.0.0.1:2\n}\n",
    );
    let routes: Vec<&str> = written.split("[[route]]\n").skip(1).collect();
    let is_copy = |route: &&&str| {
        route.contains("path = \"/api/*\"") && route.contains("[\"POST\"]") && route.contains("redirect")
    };
    assert_eq!(routes.iter().filter(is_copy).count(), 1, "{written}");
    assert_eq!(routes.len(), 4, "{written}");
}

#[test]
fn names_have_certificates_ordered_and_plain_http_is_sent_to_https() {
    let written = written(
        "{\n\temail ops@shop.example\n}\nshop.example {\n\treverse_proxy h2c://10.0.0.1:80 {\n\t\t\
         health_uri /up\n\t\tfail_duration 30s\n\t}\n}\n",
    );
    for expected in [
        "[acme]\nnames = [\"shop.example\"]\nagree_to_terms = true\ncontact = [\"ops@shop.example\"]\n",
        "listen = \"0.0.0.0:80\"\nredirect_to_https = 443\n",
        "listen = \"0.0.0.0:443\"\ntls_acme = true\n",
        "protocol = \"http2\"\n",
        "eject_after = 1\n",
        "host = [\"shop.example\"]\n",
    ] {
        assert!(written.contains(expected), "{expected}: {written}");
    }
}
