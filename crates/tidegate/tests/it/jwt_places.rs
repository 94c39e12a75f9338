//! JSON Web Tokens in cookies, in the query and among the subprotocols of WebSocket, as browsers send them: they prove whose a request
//! is, and go no further.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::heads::listening;
use crate::support::issuer::{ISSUER, Issuer};
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;
use tidegate_testkit::{Server, free_port};

const PATIENCE: Duration = Duration::from_secs(60);

/// One route for each of `upstreams`, at the path of its name.
fn start(issuer: &mut Issuer, upstreams: &[(&str, String)], token_in: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let mut file = "access_log = { to = \"access.log\" }\n\
                    gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n"
        .to_owned();
    for (name, server) in upstreams {
        file.push_str(&format!(
            "[[upstream]]\nname = {name:?}\nservers = [{server:?}]\n\
             [[route]]\nname = {name:?}\npath = \"/{name}/*\"\nupstream = {name:?}\nauth = \"jwt\"\n\
             jwt = {{ issuer = {ISSUER:?}, audience = [\"api\"], keys_file = \"secret.json\", {token_in} }}\n"
        ));
    }
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    fs::write(folder.path().join("secret.json"), issuer.keys(&["hs"])).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

fn get(service: &Tidegate, target: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let mut request = agent().get(format!("http://{}{target}", service.gateway[0]));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut reply = request.call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

/// The access log, once it has so many lines.
fn logged(service: &Tidegate, lines: usize) -> String {
    let begun = monotonic();
    loop {
        let log = fs::read_to_string(service.path().join("access.log")).unwrap_or_default();
        if log.lines().count() >= lines {
            return log;
        }
        assert!(begun.elapsed() < PATIENCE, "the requests are not logged: {log}");
    }
}

#[test]
fn fault_52_a_token_in_a_cookie_or_the_query_opens_its_route_and_goes_no_further() {
    let mut issuer = Issuer::start();
    let (server, heads) = listening();
    let token_in = "token_in = [\"cookie:session\", \"query:access_token\"]";
    let service = start(&mut issuer, &[("app", server.to_string())], token_in);
    let token = issuer.token("hs", json!({}));
    let cookie = format!("a=1; session={token}; b=2");
    assert_eq!(get(&service, "/app/?x=1", &[("cookie", &cookie)]).0, 200);
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(head.contains("\r\ncookie: a=1; b=2\r\n") && head.contains("x-consumer-id: alice"), "{head}");
    assert_eq!(get(&service, &format!("/app/?x=1&access_token={token}&y=2"), &[]).0, 200);
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(
        head.starts_with("get /app/?x=1&y=2 http/1.1\r\n") && head.contains("x-consumer-id: alice"),
        "{head}"
    );
    // A page that was opened with it in its address says so of everything that it loads.
    let referer = format!("http://a/app/?access_token={token}&page=1");
    assert_eq!(get(&service, "/app/", &[("cookie", &cookie), ("referer", &referer)]).0, 200);
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(head.contains("\r\nreferer: http://a/app/?page=1\r\n"), "{head}");
    assert_eq!(get(&service, "/favicon.ico", &[("referer", &referer)]).0, 404);

    let bearer = format!("Bearer {token}");
    let twice = format!("session={token}; session={token}");
    // Servers that strip blanks would take the first of these for the session.
    let forged = format!("session =forged; session={token}");
    let bad = format!("session={token}x");
    for (target, field, status) in [
        ("/app/".to_owned(), ("x-other", "1"), 401),
        // No place of this route.
        ("/app/".to_owned(), ("authorization", bearer.as_str()), 401),
        ("/app/".to_owned(), ("cookie", twice.as_str()), 400),
        ("/app/".to_owned(), ("cookie", forged.as_str()), 400),
        (format!("/app/?access_token={token}&access_token={token}"), ("x-other", "1"), 400),
        // The first place that has one decides, whatever another one has.
        (format!("/app/?access_token={token}"), ("cookie", bad.as_str()), 401),
    ] {
        assert_eq!(get(&service, &target, &[field]).0, status, "{target} {field:?}");
    }
    assert!(heads.try_recv().is_err(), "none of these has reached the server");
    let log = logged(&service, 10);
    assert!(!log.contains(&token), "{log}");
    assert!(log.contains("x=1&y=2"), "the rest of the query is there: {log}");
    let asked = agent().get(service.url("/v1/explain/route?host=a&path=/app/"));
    let mut explained = asked.query("header.cookie", &cookie).call().unwrap();
    let explained: Value = explained.body_mut().read_json().unwrap();
    assert_eq!(
        (&explained["key"]["outcome"], &explained["key"]["subject"]),
        (&json!("accepted"), &json!("alice"))
    );
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/jwt").join(name)
}

/// A server of WebSocket that speaks these subprotocols.
fn websocket_server(subprotocols: &[&str]) -> (Server, String) {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let port = free_port();
    let mut command = Command::new(python);
    command.arg(script("websocket_server.py")).arg(port.to_string()).args(subprotocols);
    (Server::start(&mut command, "ready"), format!("127.0.0.1:{port}"))
}

/// What a client says that behaves as browsers do.
fn websocket(service: &Tidegate, target: &str, offered: &[&str]) -> Value {
    let mut command = Command::new("node");
    command.arg(script("websocket_client.mjs")).arg(format!("ws://{}{target}", service.gateway[0]));
    let output = command.args(offered).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said)
        .unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_browsers_websocket_proves_itself_among_its_subprotocols_and_is_answered_the_one_that_was_chosen() {
    let mut issuer = Issuer::start();
    let (_plain, plain) = websocket_server(&[]);
    let (_chat, chat) = websocket_server(&["chat"]);
    let token_in = "token_in = [\"protocol:access_token\"]";
    let service = start(&mut issuer, &[("plain", plain), ("chat", chat)], token_in);
    let token = issuer.token("hs", json!({}));
    // Beside another one, the server hears and chooses that.
    for offered in [["chat", "access_token", token.as_str()], ["access_token", token.as_str(), "chat"]] {
        let said = websocket(&service, "/chat/?x=1", &offered);
        let heard = json!({"path": "/chat/?x=1", "sec-websocket-protocol": "chat", "x-consumer-id": "alice"});
        assert_eq!(said, json!({"agreed": "chat", "heard": heard}));
    }
    // Alone, the server hears of none, and the client is told of the name that it led with.
    let said = websocket(&service, "/plain/", &["access_token", &token]);
    assert_eq!(
        said,
        json!({"agreed": "access_token", "heard": {"path": "/plain/", "x-consumer-id": "alice"}})
    );
    // A server that chooses none of several is not answered for: the client breaks off, as it would without a gateway.
    let said = websocket(&service, "/plain/", &["chat", "access_token", &token]);
    assert_eq!(said["error"], "Server sent no subprotocol");
    let other = format!("{token}x");
    for offered in
        [&[][..], &["access_token"][..], &["access_token", other.as_str()][..], &["chat", token.as_str()][..]]
    {
        let said = websocket(&service, "/plain/", offered);
        assert_eq!(said["error"], "Unexpected server response: 401", "{offered:?}");
    }
}
