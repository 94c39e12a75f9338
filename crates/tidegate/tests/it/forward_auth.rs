//! Another service says whose a request is: nginx plays it in front of the gateway of the built binary.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::support::heads::listening;
use crate::support::{Tidegate, agent};
use tidegate_net::clock::monotonic;
use tidegate_testkit::nginx::Nginx;

const PATIENCE: Duration = Duration::from_secs(60);

/// nginx, which knows two users, and writes a line for each time that it is asked.
struct Authority {
    nginx: Nginx,
    port: u16,
}

impl Authority {
    fn start() -> Self {
        let port = tidegate_testkit::free_port();
        let nginx = Nginx::start(&[port], |folder| {
            let place = folder.display();
            format!(
                "log_format asked '$request_uri $http_x_forwarded_method $http_x_forwarded_host $http_x_forwarded_uri \
                 $http_x_forwarded_for $http_x_secret $http_authorization';\n\
                 access_log {place}/asked.log asked;\n\
                 map $http_authorization $user {{ default \"\"; \"Bearer alice\" alice; \"Bearer bob\" bob; }}\n\
                 server {{\nlisten 127.0.0.1:{port};\n\
                 location = /verify {{\n\
                 if ($user = \"\") {{ add_header WWW-Authenticate 'Bearer realm=\"here\"' always; return 401 \"who are you?\\n\"; }}\n\
                 add_header X-User $user; add_header X-Plan pro; add_header X-Internal secret; return 204;\n}}\n\
                 location = /login {{ add_header X-Internal secret; return 302 https://login.example/; }}\n\
                 location = /broken {{ return 500; }}\n}}"
            )
        });
        Self { nginx, port }
    }

    /// What it was asked so far, each a line. They are written after its answers: `count` are waited for.
    fn asked(&self, count: usize) -> Vec<String> {
        let begun = monotonic();
        loop {
            let text = fs::read_to_string(self.nginx.folder().join("asked.log")).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if text.ends_with('\n') && lines.len() >= count {
                return lines;
            }
            assert!(begun.elapsed() < PATIENCE, "{lines:?}");
        }
    }
}

fn file(server: SocketAddr, port: u16) -> String {
    let asks = "upstream = \"authority\", timeout_seconds = 20";
    let route = |name: &str, keys: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\npath = \"/{name}/*\"\nupstream = \"app\"\nauth = \"forward\"\n\
             policies = [\"per-user\"]\nforward_auth = {{ {keys} }}\n"
        )
    };
    let told = "fields = [\"x-user\"], attributes = { consumer = \"x-user\", tier = \"x-plan\" }";
    [
        format!(
            "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
             upstream = [{{ name = \"app\", servers = [\"{server}\"] }}, \
             {{ name = \"authority\", servers = [\"127.0.0.1:{port}\"], breaker = {{ enabled = false }}, eject_after = 0 }}]\n\
             policy = [{{ name = \"per-user\", limit = 10, window_seconds = 3600, key = [\"consumer\"], \
             tiers = {{ pro = {{ limit = 1000 }} }} }}]\n"
        ),
        route("plain", &format!("{asks}, path = \"/verify\", {told}")),
        route(
            "cached",
            &format!("{asks}, path = \"/verify\", {told}, cache_seconds = 3600, cache_by = [\"header:authorization\", \"path\"]"),
        ),
        route("login", &format!("{asks}, path = \"/login\"")),
        route("broken", &format!("{asks}, path = \"/broken\"")),
        route("lenient", "upstream = \"authority\", path = \"/verify\", timeout_seconds = 3, on_error = \"allow\""),
        route("strict", "upstream = \"authority\", path = \"/verify\", timeout_seconds = 3"),
        "[[route]]\nname = \"open\"\nupstream = \"app\"\n".to_owned(),
    ]
    .concat()
}

struct Served {
    service: Tidegate,
    heads: Receiver<String>,
}

struct Answer {
    status: u16,
    left: Option<u64>,
    fields: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Served {
    fn start(authority: &Authority) -> Self {
        let (server, heads) = listening();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), file(server, authority.port)).unwrap();
        let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
        Self { service: Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment), heads }
    }

    fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
        let mut request = agent.get(format!("http://{}{path}", self.service.gateway[0]));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut reply = request.call().unwrap();
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let fields: Vec<(String, String)> =
            reply.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let status = reply.status().as_u16();
        let body = reply.body_mut().read_to_string().unwrap();
        let mut answer = Answer { status, left: None, fields, body };
        answer.left = answer
            .field("ratelimit")
            .and_then(|text| text.split_once(";r=")?.1.split(';').next()?.parse().ok());
        answer
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(PATIENCE).unwrap()
    }

    fn counted(&self, result: &str) -> u64 {
        let page =
            agent().get(self.service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
        let series = format!("tidegate_forward_auth_requests_total{{result=\"{result}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
    }
}

const ALICE: (&str, &str) = ("authorization", "Bearer alice");
const BOB: (&str, &str) = ("authorization", "Bearer bob");

#[test]
fn what_the_service_says_is_told_to_servers_and_limits_and_its_refusal_to_the_client() {
    let authority = Authority::start();
    let served = Served::start(&authority);
    let forged = [
        ("x-user", "root"),
        ("x_user", "root"),
        ("x-consumer-id", "root"),
        ("x-secret", "of the application"),
    ];
    let answer = served.get("/plain/a?b=1", &[&[ALICE][..], &forged].concat());
    assert_eq!((answer.status, answer.left), (200, Some(999)));
    let head = served.head();
    for told in
        ["x-user: alice", "x-consumer-id: alice", "x-consumer-tier: pro", "authorization: bearer alice"]
    {
        assert!(head.contains(told), "{told} is not in {head}");
    }
    assert!(!head.contains("root") && !head.contains("x-internal"), "{head}");
    let asked = authority.asked(1);
    let host = served.service.gateway[0];
    assert_eq!(asked, [format!("/verify GET {host} /plain/a?b=1 127.0.0.1 - Bearer alice")]);
    assert_eq!(served.get("/plain/", &[BOB]).left, Some(999), "another one has a quota of his own");
    served.head();
    assert_eq!(served.get("/other", &forged).status, 200);
    assert!(!served.head().contains("root"), "nobody else may say whose a request is, on any route");

    let refused = served.get("/plain/", &[]);
    assert_eq!((refused.status, refused.body.as_str()), (401, "who are you?\n"));
    assert_eq!(refused.field("www-authenticate"), Some("Bearer realm=\"here\""));
    let login = served.get("/login/", &[ALICE]);
    assert_eq!((login.status, login.field("location")), (302, Some("https://login.example/")));
    assert_eq!((login.field("x-internal"), login.field("server")), (None, None));
    assert_eq!(served.get("/broken/", &[ALICE]).status, 503);
    assert_eq!(served.get("/plain/", &[ALICE]).left, Some(998), "no refusal was charged");
    served.head();
    assert!(served.heads.try_recv().is_err(), "no refused request has reached the server");
    assert_eq!(["allowed", "refused", "failed"].map(|result| served.counted(result)), [3, 2, 1]);
}

#[test]
fn an_answer_is_known_by_what_the_route_names_and_a_refusal_never_is() {
    let authority = Authority::start();
    let served = Served::start(&authority);
    for _ in 0..5 {
        assert_eq!(served.get("/cached/a", &[ALICE]).status, 200);
        assert!(served.head().contains("x-user: alice"));
    }
    assert_eq!(served.get("/cached/a", &[BOB]).status, 200);
    assert!(served.head().contains("x-user: bob"), "another client is another one");
    assert_eq!(served.get("/cached/b", &[ALICE]).status, 200);
    served.head();
    for _ in 0..3 {
        assert_eq!(served.get("/cached/a", &[]).status, 401);
    }
    let asked =
        authority.asked(6).into_iter().map(|line| line.rsplit(' ').take(5).collect::<Vec<_>>().join(" "));
    let of = |path: &str, user: &str| format!("{user} Bearer - 127.0.0.1 /cached/{path}");
    let expected = [of("a", "alice"), of("a", "bob"), of("b", "alice")];
    assert_eq!(asked.take(3).collect::<Vec<_>>(), expected, "the route names the path, too");
    assert_eq!((authority.asked(6).len(), served.counted("known")), (6, 4));
    authority.nginx.server.freeze();
    assert_eq!(served.get("/cached/a", &[ALICE]).status, 200, "who is known passes also while it hangs");
}

#[test]
fn a_service_that_hangs_or_is_gone_admits_nobody_unless_the_route_says_so() {
    let authority = Authority::start();
    let served = Served::start(&authority);
    assert_eq!(
        served.get("/lenient/", &[("authorization", "Bearer x")]).status,
        401,
        "a refusal is no error"
    );
    authority.nginx.server.freeze();
    let refused = served.get("/strict/", &[ALICE]);
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    let forged = [ALICE, ("x-user", "root"), ("x-consumer-id", "root")];
    assert_eq!(served.get("/lenient/", &forged).status, 200);
    assert!(!served.head().contains("root"), "it passes as nobody's");
    drop(authority);
    assert_eq!(
        (served.get("/strict/", &[ALICE]).status, served.get("/lenient/", &[ALICE]).status),
        (503, 200)
    );
    served.head();
    assert_eq!(served.get("/other", &[]).status, 200);
    served.head();
    assert!(served.heads.try_recv().is_err());
}
