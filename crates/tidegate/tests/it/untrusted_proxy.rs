//! nginx in front of a server that does not know of it: all clients have its address, which the log says once.

use std::fs;

use crate::support::{Tidegate, agent};
use tidegate_testkit::nginx::Nginx;

/// What the server says while nginx passes on three requests to the gateway, and three for a check.
fn said(settings: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "{settings}gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         route = [{{ name = \"hello\", respond = {{ body = \"hello\" }} }}]\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let listen = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &listen);
    // Nothing is said of a client that states no address.
    assert_eq!(agent().get(service.url("/v1/check")).call().unwrap().status(), 204);
    let port = tidegate_testkit::free_port();
    let nginx = Nginx::start(&[port], |_| {
        format!(
            "server {{\nlisten 127.0.0.1:{port};\n\
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             location / {{ proxy_pass http://{}; }}\n\
             location = /check {{ proxy_pass http://{}/v1/check; }}\n}}",
            service.gateway[0], service.http
        )
    });
    for _ in 0..3 {
        for (path, status) in [("/", 200), ("/check", 204)] {
            let reply = agent().get(format!("http://127.0.0.1:{port}{path}")).call().unwrap();
            assert_eq!(reply.status(), status, "{path}");
        }
    }
    drop(nginx);
    service.signal("TERM");
    service.wait().output
}

#[test]
fn fault_48_a_proxy_that_nothing_trusts_is_said_once_at_each_door() {
    let settings = ["http.trusted_proxy_hops", "gateway.trusted_proxy_hops"];
    let output = said("");
    for setting in settings {
        let line = format!("all of its clients share its address, and its limits. {setting} says");
        assert_eq!(output.matches(&line).count(), 1, "{output}");
    }
    let output = said(&settings.map(|setting| format!("{setting} = 1\n")).concat());
    assert!(!output.contains("share its address"), "{output}");
}
