//! Which of a route's policies a preflight is charged under that passes without credentials, by the built binary.

use std::fs;
use std::net::SocketAddr;

use crate::support::heads::listening;
use crate::support::{Tidegate, agent};

/// Policies that need an identity, or a field of the application's, and one that needs neither. Each has room for two requests.
fn file(server: SocketAddr) -> String {
    let policy = |name: &str, key: &str| {
        format!("{{ name = \"{name}\", limit = 2, window_seconds = 3600, key = [\"{key}\"] }}")
    };
    let policies = [
        policy("per-key", "api_key"),
        policy("per-tenant", "tenant"),
        policy("per-client", "client_id"),
        policy("per-address", "ip"),
    ];
    format!(
        "on_no_match = \"deny\"\n\
         gateway.key_secret = \"0123456789abcdef0123456789abcdef\"\n\
         gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         attributes.gateway = {{ tenant = {{ header = \"x-tenant\" }}, client_id = {{ header = \"x-client\" }} }}\n\
         upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
         policy = [{}]\n\
         [[route]]\nname = \"named\"\npath = \"/named/*\"\nupstream = \"app\"\nauth = \"key\"\nskip_auth_preflight = true\n\
         policies = [\"per-key\", \"per-tenant\", \"per-client\"]\n\
         [[route]]\nname = \"open\"\npath = \"/open/*\"\nupstream = \"app\"\npolicies = [\"per-tenant\"]\n\
         [[route]]\nname = \"all\"\nupstream = \"app\"\nauth = \"key\"\nskip_auth_preflight = true\n\
         policies = [\"per-key\", \"per-address\"]\n",
        policies.join(", ")
    )
}

/// The status of a preflight's reply, and whether that says something of limits.
fn preflight(service: &Tidegate, path: &str) -> (u16, bool) {
    let request = agent().options(format!("http://{}{path}", service.gateway[0]));
    let request =
        request.header("origin", "https://a.example").header("access-control-request-method", "PUT");
    let reply = request.header("x-tenant", "victim").header("x-client", "victim").call().unwrap();
    (reply.status().as_u16(), reply.headers().contains_key("ratelimit"))
}

#[test]
fn a_preflight_without_credentials_is_charged_by_its_address_and_never_as_somebody() {
    let (server, _heads) = listening();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file(server)).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    // No policy is about it, and `on_no_match` is not asked either.
    for _ in 0..5 {
        assert_eq!(preflight(&service, "/named/x"), (200, false));
    }
    // What it said of itself cost nobody anything.
    let url = format!("http://{}/open/x", service.gateway[0]);
    let reply = agent().get(url).header("x-tenant", "victim").call().unwrap();
    assert!(reply.headers()["ratelimit"].to_str().unwrap().contains(";r=1;"), "{:?}", reply.headers());
    // Anybody can send one, so that an address has no more of them than its policy allows.
    let answers: Vec<_> = (0..3).map(|_| preflight(&service, "/x")).collect();
    assert_eq!(answers, [(200, true), (200, true), (429, true)]);
    let url = format!("http://{}/x", service.gateway[0]);
    assert_eq!(agent().get(url).call().unwrap().status().as_u16(), 401);
}
