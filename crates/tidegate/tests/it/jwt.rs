//! JSON Web Tokens at the gateway of the built binary: signed by PyJWT, with keys that a web server or a file has.
//!
//! Over 400 lines because one issuer and one file of routes serve all of it.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::support;
use crate::support::heads::listening;
use crate::support::issuer::{ISSUER, Issuer, Published, claims, seconds};
use crate::support::{Tidegate, agent, faketime};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;

const PATIENCE: Duration = Duration::from_secs(60);

/// A route whose keys are published, one whose keys are in a file, one that passes tokens on, and one without.
fn file(server: SocketAddr, keys: &str) -> String {
    let url = format!("keys_url = \"{keys}/jwks.json\"");
    let common = format!("issuer = {ISSUER:?}, audience = [\"api\"]");
    let mapped = "attributes = { consumer = \"sub\", tier = \"/org/plan\" }, fields = { x-user = \"sub\", x-roles = \"roles\" }";
    format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
         policy = [{{ name = \"per-user\", limit = 10, window_seconds = 3600, key = [\"consumer\"], \
         tiers = {{ free = {{}}, pro = {{ limit = 30 }} }} }}]\n\
         [[route]]\nname = \"api\"\nupstream = \"app\"\nauth = \"jwt\"\npolicies = [\"per-user\"]\n\
         jwt = {{ {common}, {url}, {mapped} }}\n\
         [[route]]\nname = \"file\"\npath = \"/file\"\nupstream = \"app\"\nauth = \"jwt\"\n\
         jwt = {{ {common}, keys_file = \"secret.json\" }}\n\
         [[route]]\nname = \"scoped\"\npath = \"/scoped\"\nupstream = \"app\"\nauth = \"jwt\"\n\
         jwt = {{ {common}, {url}, required = {{ scope = \"orders:read\" }}, forward = true }}\n\
         [[route]]\nname = \"open\"\npath = \"/open\"\nupstream = \"app\"\n"
    )
}

struct Served {
    service: Tidegate,
    server: SocketAddr,
    heads: Receiver<String>,
    /// Keeps its connections: whoever looks for half a minute with a new one each time leaves no port to others.
    agent: ureq::Agent,
}

fn start(keys: SocketAddr, secrets: &str, environment: &[(&str, &str)]) -> Served {
    start_at(&format!("http://{keys}"), secrets, environment)
}

fn start_at(keys: &str, secrets: &str, environment: &[(&str, &str)]) -> Served {
    let (server, heads) = listening();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file(server, keys)).unwrap();
    fs::write(folder.path().join("secret.json"), secrets).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    Served { service, server, heads, agent: agent() }
}

struct Answer {
    status: u16,
    left: Option<u64>,
    challenge: Option<String>,
    body: String,
}

impl Served {
    fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.get(format!("http://{}{path}", self.service.gateway[0]));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut reply = request.call().unwrap();
        let field = |name: &str| Some(reply.headers().get(name)?.to_str().unwrap().to_owned());
        let left =
            field("ratelimit").and_then(|text| text.split_once(";r=")?.1.split(';').next()?.parse().ok());
        let (status, challenge) = (reply.status().as_u16(), field("www-authenticate"));
        Answer { status, left, challenge, body: reply.body_mut().read_to_string().unwrap() }
    }

    fn with(&self, path: &str, token: &str) -> Answer {
        self.get(path, &[("authorization", &format!("Bearer {token}"))])
    }

    /// Asks until the answer is this one.
    fn until(&self, path: &str, token: &str, status: u16) {
        let begun = monotonic();
        loop {
            let answer = self.with(path, token);
            if answer.status == status {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{} {:?}", answer.status, answer.challenge);
        }
    }

    fn metric(&self, series: &str) -> Option<u64> {
        let mut reply = self.agent.get(self.service.url("/metrics")).call().unwrap();
        let page = reply.body_mut().read_to_string().unwrap();
        let line =
            page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|value| value.parse().ok())
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(PATIENCE).unwrap()
    }
}

#[test]
fn a_token_of_each_algorithm_opens_its_route_and_says_whose_it_is() {
    let mut issuer = Issuer::start();
    let published = Published::start(&issuer.keys(&["rs", "es", "ed"]), 0);
    let served = start(published.address, &issuer.keys(&["hs"]), &[]);
    let tokens = ["rs", "es", "ed"].map(|key| issuer.token(key, json!({"roles": ["a", "b"]})));
    served.until("/", &tokens[0], 200);
    let first_head = served.head();
    let forged = [("x-user", "root"), ("x_user", "root"), ("x-consumer-id", "root"), ("x-roles", "root")];
    let mut left = served.with("/", &tokens[1]).left.unwrap();
    served.head();
    for token in &tokens {
        let bearer = format!("Bearer {token}");
        let answer = served.get("/", &[&[("authorization", bearer.as_str())][..], &forged].concat());
        assert_eq!((answer.status, answer.left), (200, Some(left - 1)), "of the tier's 30, whatever the key");
        left -= 1;
        let head = served.head();
        for told in ["x-user: alice", "x-roles: a,b", "x-consumer-id: alice", "x-consumer-tier: pro"] {
            assert!(head.contains(told), "{told} is not in {head}");
        }
        assert!(!head.contains("root") && !head.contains("authorization"), "{head}");
    }
    assert!(first_head.contains("x-user: alice") && left == 25, "{left}: {first_head}");
    assert_eq!(served.get("/open", &forged).status, 200);
    assert!(!served.head().contains("root"), "nobody else may say whose a request is, on any route");

    let secret = issuer.token("hs", json!({}));
    assert_eq!((served.with("/file", &secret).status, served.with("/", &secret).status), (200, 401));
    assert!(served.head().contains("x-consumer-id: alice"));
    let bob = issuer.token("es", json!({"sub": "bob", "org": {"plan": "free"}}));
    assert_eq!(served.with("/", &bob).left, Some(9), "another one has numbers of his own");
    served.head();

    let scoped = issuer.token("es", json!({"scope": "profile orders:read"}));
    assert_eq!(served.with("/scoped", &scoped).status, 200);
    assert!(served.head().contains(&format!("authorization: bearer {}", scoped.to_lowercase())));
    let refused = served.with("/scoped", &bob);
    assert_eq!(refused.status, 403);
    assert!(refused.challenge.unwrap().starts_with("Bearer error=\"insufficient_scope\""));

    // Each of the tokens is verified once for a route that has seen it.
    let verified = served.metric("tidegate_jwt_verifications_total").unwrap();
    for _ in 0..5 {
        assert_eq!(served.with("/file", &secret).status, 200);
    }
    // Nor again because the upstream of its route has another weight, or another server.
    let heavier = json!({"servers": [{"url": format!("http://{}", served.server), "weight": 3}]});
    let put = agent().put(served.service.url("/v1/upstreams/app")).send_json(&heavier).unwrap();
    assert_eq!((put.status().as_u16(), served.with("/file", &secret).status), (200, 200));
    assert_eq!(served.metric("tidegate_jwt_verifications_total"), Some(verified));
    let explained = agent().get(served.service.url("/v1/explain/route?host=a&path=/"));
    let explained = explained.query("header.authorization", format!("Bearer {bob}")).call().unwrap();
    let explained: Value = explained.into_body().read_json().unwrap();
    assert_eq!(
        (&explained["key"]["outcome"], &explained["key"]["subject"]),
        (&json!("accepted"), &json!("bob"))
    );
}

fn with_another_signature(token: &str) -> String {
    let (place, letter) = token.char_indices().nth_back(9).unwrap();
    format!("{}{}{}", &token[..place], if letter == 'A' { 'B' } else { 'A' }, &token[place + 1..])
}

#[test]
fn fault_50_a_token_that_is_not_wholly_good_is_401_and_nothing_is_charged() {
    let mut issuer = Issuer::start();
    let published = Published::start(&issuer.keys(&["rs", "es"]), 0);
    let served = start(published.address, &issuer.keys(&["hs"]), &[]);
    let good = issuer.token("rs", json!({}));
    served.until("/", &good, 200);
    served.head();
    let left = served.with("/", &good).left.unwrap();
    served.head();
    let now = seconds();
    let mut bad = vec![
        (issuer.token("none", json!({})), "not a JWT"),
        (issuer.ask(&json!({"key": "rs", "confused": true, "claims": claims(json!({}))})), "not a JWT"),
        (issuer.token("hs", json!({})), "a key that is not known"),
        (issuer.token("es2", json!({})), "a key that is not known"),
        (issuer.token("rs", json!({"exp": now - 61})), "has expired"),
        (issuer.token("rs", json!({"exp": null})), "claim exp"),
        (issuer.token("rs", json!({"nbf": now + 3_600})), "not valid yet"),
        (issuer.token("rs", json!({"iss": "https://issuer.example"})), "another issuer"),
        (issuer.token("rs", json!({"aud": "apis"})), "another audience"),
        (issuer.token("rs", json!({"aud": null})), "another audience"),
        (issuer.token("rs", json!({"sub": "a".repeat(600)})), "claim sub"),
        (issuer.token("rs", json!({"roles": {"a": 1}})), "claim roles"),
        (with_another_signature(&good), "signature is wrong"),
        (format!("{good}.x"), "not a JWT"),
        ("x".repeat(20_000), "a bearer token is needed"),
    ];
    for (header, said) in [
        (json!({"kid": "../../secret.json"}), "a key that is not known"),
        (json!({"kid": "es"}), "not a JWT"),
        (json!({"crit": ["exp"]}), "not a JWT"),
        (json!({"jku": "http://127.0.0.1:1/", "kid": "mine"}), "a key that is not known"),
    ] {
        bad.push((issuer.ask(&json!({"key": "rs", "claims": claims(json!({})), "header": header})), said));
    }
    for (token, said) in &bad {
        let answer = served.with("/", token);
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, problem["status"].as_u64()), (401, Some(401)), "{said}: {token}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{said}: {problem}");
        let challenge = answer.challenge.unwrap();
        assert!(
            challenge == "Bearer" || challenge.starts_with("Bearer error=\"invalid_token\""),
            "{challenge}"
        );
    }
    let without = served.get("/", &[]);
    assert_eq!((without.status, without.challenge.as_deref()), (401, Some("Bearer")));
    let twice = ["Bearer a", "Basic YTpi"].map(|value| ("authorization", value));
    assert_eq!(served.get("/", &twice).status, 400);
    assert!(served.heads.try_recv().is_err(), "none of these has reached the server");
    assert_eq!(served.with("/", &good).left, Some(left - 1), "none of these was charged");
}

#[test]
fn fault_50_a_clock_that_is_an_hour_off_refuses_tokens_and_says_why() {
    let mut issuer = Issuer::start();
    let published = Published::start(&issuer.keys(&["es"]), 0);
    let library = faketime();
    let shifted = |shift| {
        let environment =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", shift), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        start(
            published.address,
            "{\"keys\":[{\"kty\":\"oct\",\"k\":\"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE\"}]}",
            &environment,
        )
    };
    let token = issuer.token("es", json!({"nbf": seconds()}));
    let long = issuer.token("es", json!({"exp": seconds() + 86_400, "nbf": seconds() - 86_400}));
    for (shift, said) in [("-1h", "the token is not valid yet"), ("+1h", "the token has expired")] {
        let served = shifted(shift);
        served.until("/", &long, 200);
        let answer = served.with("/", &token);
        assert_eq!(answer.status, 401);
        assert!(answer.challenge.unwrap().contains(said), "{shift}");
        assert_eq!(served.with("/", &long).status, 200, "a token that outlasts the error is good");
    }
}

#[test]
fn fault_65_keys_that_cannot_be_had_are_waited_for_by_nobody_and_rotated_ones_are_found() {
    let mut issuer = Issuer::start();
    // Its port, and nobody behind it.
    let gone = Published::start(&issuer.keys(&["rs"]), 0);
    let address = gone.address;
    drop(gone);
    let served = start(address, &issuer.keys(&["hs"]), &[]);
    let (first, second) = (issuer.token("rs", json!({})), issuer.token("rs2", json!({})));
    let answer = served.with("/", &first);
    assert_eq!((answer.status, answer.challenge), (503, None), "nobody can say whether it is good");
    let published = Published::start(&issuer.keys(&["rs"]), address.port());
    served.until("/", &first, 200);

    // The server hangs, and with it a fetch, until its time is over. Known keys hold, and nobody waits.
    published.signal("STOP");
    let unknown = issuer.token("rs9", json!({}));
    let series =
        format!("tidegate_jwt_key_fetches_total{{url=\"http://{address}/jwks.json\",result=\"failed\"}}");
    let failed = || served.metric(&series).unwrap();
    let (begun, before) = (monotonic(), failed());
    while failed() == before {
        let asked = monotonic();
        assert_eq!((served.with("/scoped", &first).status, served.with("/", &unknown).status), (403, 401));
        assert!(asked.elapsed() < Duration::from_secs(8), "they waited for the keys: {:?}", asked.elapsed());
        assert!(begun.elapsed() < PATIENCE, "no fetch was given up");
    }
    published.signal("CONT");

    published.put(&issuer.keys(&["rs2"]));
    served.until("/", &second, 200);
    served.until("/", &first, 401);
    published.put("{");
    let before = failed();
    // A flood of names that nobody has: at most one fetch in five seconds.
    let (begun, fetched) = (monotonic(), published.fetches.load(SeqCst));
    let mut asked = 0;
    while failed() == before || asked < 300 {
        let token = issuer
            .ask(&json!({"key": "rs2", "claims": claims(json!({})), "header": {"kid": asked.to_string()}}));
        assert_eq!(served.with("/", &token).status, 401);
        asked += 1;
        assert!(failed() != before || begun.elapsed() < PATIENCE, "the new set was never fetched");
    }
    let most = begun.elapsed().as_secs() / 5 + 2;
    let fetches = published.fetches.load(SeqCst) - fetched;
    assert!(fetches as u64 <= most, "{fetches} fetches for {asked} requests in {:?}", begun.elapsed());
    assert_eq!(served.with("/scoped", &second).status, 403, "the last good keys stay");
}

#[test]
fn keys_of_one_name_are_all_tried_in_a_set_of_150_others() {
    let mut issuer = Issuer::start();
    let mut set: Value = serde_json::from_str(&issuer.keys(&["rs", "rs2"])).unwrap();
    let keys = set["keys"].as_array_mut().unwrap();
    let other = keys[0].clone();
    keys.iter_mut().for_each(|key| key["kid"] = json!("one"));
    keys.extend((0..150).map(|number| {
        let mut key = other.clone();
        key["kid"] = json!(number.to_string());
        key
    }));
    let published = Published::start(&set.to_string(), 0);
    let served = start(published.address, &issuer.keys(&["hs"]), &[]);
    for key in ["rs", "rs2"] {
        let token = issuer.ask(&json!({"key": key, "claims": claims(json!({})), "header": {"kid": "one"}}));
        served.until("/", &token, 200);
        assert_eq!(served.with("/", &with_another_signature(&token)).status, 401);
    }
}

#[test]
fn fault_65_keys_come_by_tls_from_who_proves_its_name_and_the_last_good_ones_stay() {
    let (mut issuer, certificates) = (Issuer::start(), Certificates::make());
    // Its name is not the one of the URL, although the authority is trusted.
    let other = certificates.issue_named("other", "DNS:other.example");
    let impostor = Published::start_with_tls(&issuer.keys(&["rs"]), 0, &other);
    let address = impostor.address;
    let (url, authority) = (format!("https://{address}"), certificates.authority().display().to_string());
    let served = start_at(&url, &issuer.keys(&["hs"]), &[("SSL_CERT_FILE", &authority)]);
    let fetches = |result: &str| {
        let labels = format!("url=\"{url}/jwks.json\",result=\"{result}\"");
        served.metric(&format!("tidegate_jwt_key_fetches_total{{{labels}}}")).unwrap()
    };
    let until_another_fails = || {
        let (begun, before) = (monotonic(), fetches("failed"));
        while fetches("failed") == before {
            assert!(begun.elapsed() < PATIENCE, "no fetch has failed");
            #[allow(clippy::disallowed_methods, reason = "a pause between looks, which no event ends")]
            // Sleeps because fetches are seconds apart, and whoever looks all the time takes a core from the other tests.
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until_another_fails();
    let first = issuer.token("rs", json!({}));
    assert_eq!((served.with("/", &first).status, fetches("ok")), (503, 0), "an impostor's keys are none");
    drop(impostor);

    let published =
        Published::start_with_tls(&issuer.keys(&["rs"]), address.port(), &certificates.issue("right"));
    served.until("/", &first, 200);
    published.put(&issuer.keys(&["es"]));
    let second = issuer.token("es", json!({}));
    served.until("/", &second, 200);
    served.until("/", &first, 401);

    // It hangs, then an impostor is in its place: the last good keys stay, for tokens that nobody has seen.
    let (mut number, others) = (0, issuer.keys(&["rs"]));
    let mut still_good = || {
        number += 1;
        let (known, unknown) = (json!({ "jti": number }), json!({}));
        assert_eq!(served.with("/", &issuer.token("es", known)).status, 200);
        assert_eq!(served.with("/", &issuer.token("rs", unknown)).status, 401);
    };
    published.signal("STOP");
    still_good();
    until_another_fails();
    still_good();
    drop(published);
    let _impostor = Published::start_with_tls(&others, address.port(), &other);
    until_another_fails();
    still_good();
}

#[test]
fn what_is_wrong_with_a_configuration_of_tokens_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.json"), "{\"keys\": []}").unwrap();
    let check = |route: &str| {
        let text = format!(
            "upstream = [{{ name = \"a\", servers = [\"a:1\"] }}]\n[[route]]\nname = \"r\"\nupstream = \"a\"\n{route}\n"
        );
        fs::write(folder.path().join("t.toml"), text).unwrap();
        let output = support::binary().args(["check", "t.toml"]).current_dir(folder.path()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    for (route, said) in [
        ("auth = \"jwt\"", "jwt: is missing"),
        ("jwt = { issuer = \"a\", keys_url = \"https://a/b\" }", "jwt: has no effect without auth"),
        ("auth = \"jwt\"\njwt = { keys_url = \"https://a/b\" }", "jwt.issuer: is missing"),
        ("auth = \"jwt\"\njwt = { issuer = \"a\" }", "jwt.keys_url: is missing"),
        ("auth = \"jwt\"\njwt = { issuer = \"a\", keys_url = \"a/b\" }", "jwt.keys_url: is \"a/b\""),
        (
            "auth = \"jwt\"\njwt = { issuer = \"a\", keys_file = \"none.json\" }",
            "jwt.keys_file: \"none.json\" cannot be read",
        ),
        (
            "auth = \"jwt\"\njwt = { issuer = \"a\", keys_file = \"bad.json\" }",
            "jwt.keys_file: \"bad.json\" is no set of keys",
        ),
        (
            "auth = \"jwt\"\njwt = { issuer = \"a\", keys_url = \"http://a/\", attributes = { path = \"sub\" } }",
            "jwt.attributes.path: cannot be such an attribute",
        ),
        (
            "auth = \"jwt\"\njwt = { issuer = \"a\", keys_url = \"http://a/\", fields = { host = \"sub\" } }",
            "jwt.fields.host: cannot be such a field",
        ),
    ] {
        let output = check(route);
        assert!(output.contains(said), "{said}: {output}");
    }
}
