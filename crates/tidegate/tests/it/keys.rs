//! API keys of the built binary: issued by the command, proved to the gateway, rotated, moved between tiers, narrowed, revoked.
//!
//! Over 400 lines because one file of routes serves all of it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::support::heads::listening;
use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

const PATIENCE: Duration = Duration::from_secs(60);

/// Routes with a key in each place, and one without; the general numbers are those of the tier `free`.
fn file(server: SocketAddr) -> String {
    format!(
        "access_log = {{ to = \"access.log\" }}\n\
         gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
         policy = [{{ name = \"per-key\", limit = 10, window_seconds = 3600, key = [\"api_key\"], \
         tiers = {{ free = {{}}, pro = {{ limit = 30 }} }} }}]\n\
         [[route]]\nname = \"api\"\nupstream = \"app\"\nauth = \"key\"\npolicies = [\"per-key\"]\n\
         [[route]]\nname = \"query\"\npath = \"/query/*\"\nupstream = \"app\"\nauth = \"key\"\nkey_in = [\"query:api_key\", \"basic\"]\n\
         [[route]]\nname = \"open\"\npath = \"/open/*\"\nupstream = \"app\"\n"
    )
}

fn start(server: SocketAddr) -> Tidegate {
    start_with(&file(server))
}

fn start_with(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

/// What `tidegate keys` prints, line by line, or says on its way out.
fn command(service: &Tidegate, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let mut command = binary();
    command.arg("keys").args(arguments).args(["--server", &service.url("")]);
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn issue(service: &Tidegate, arguments: &[&str]) -> (String, String) {
    let issued = command(service, &[&["issue", "--consumer", "acme"], arguments].concat()).unwrap();
    let text = |name: &str| issued[0][name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// Status, what is left of the policy if a reply says so, the challenges, and the problem.
struct Answer {
    status: u16,
    left: Option<u64>,
    challenges: Vec<String>,
    body: String,
}

fn get(service: &Tidegate, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut request = agent().get(format!("http://{}{path}", service.gateway[0]));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut reply = request.call().unwrap();
    let values = |name: &str| -> Vec<String> {
        reply.headers().get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let left = values("ratelimit").first().and_then(|text| {
        let (_, rest) = text.split_once(";r=")?;
        rest.split(';').next()?.parse().ok()
    });
    let (status, challenges) = (reply.status().as_u16(), values("www-authenticate"));
    Answer { status, left, challenges, body: reply.body_mut().read_to_string().unwrap() }
}

fn with_key(service: &Tidegate, key: &str) -> Answer {
    get(service, "/", &[("x-api-key", key)])
}

#[test]
fn a_key_opens_its_routes_from_every_place_and_servers_are_told_whose_it_is() {
    let (server, heads) = listening();
    let service = start(server);
    let (id, key) = issue(&service, &["--tier", "pro"]);
    // What only the gateway may say is taken off what clients send, also where no key is asked for.
    let forged = [("x-consumer-id", "root"), ("x_consumer_id", "root"), ("x-consumer-tier", "root")];
    let answer = get(&service, "/", &[&[("x-api-key", key.as_str())][..], &forged].concat());
    assert_eq!((answer.status, answer.left), (200, Some(29)));
    let head = heads.recv_timeout(PATIENCE).unwrap();
    for told in ["x-consumer-id: acme", &format!("x-credential-identifier: {id}"), "x-consumer-tier: pro"] {
        assert!(head.contains(told), "{told} is not in {head}");
    }
    assert!(!head.contains("root") && !head.contains("x_consumer_id") && !head.contains(&key), "{head}");
    assert_eq!(get(&service, "/open/", &forged).status, 200);
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(!head.contains("root") && !head.contains("x-consumer-id"), "{head}");

    let bearer = format!("Bearer {key}");
    assert_eq!(get(&service, "/", &[("authorization", &bearer)]).status, 200);
    assert!(!heads.recv_timeout(PATIENCE).unwrap().contains("authorization"));
    assert_eq!(get(&service, &format!("/query/?a=1&api_key={key}&b=2"), &[]).status, 200);
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("get /query/?a=1&b=2 http/1.1\r\n"), "{head}");
    let basic = format!("http://any:{key}@{}/query/", service.gateway[0]);
    let curl = std::process::Command::new("curl").args(["-sf", &basic]).output().unwrap();
    assert_eq!(String::from_utf8(curl.stdout).unwrap(), "ok");
    assert!(!heads.recv_timeout(PATIENCE).unwrap().contains("authorization"));
    assert_eq!(
        get(&service, "/query/", &[("x-api-key", &key)]).status,
        401,
        "that is no place of this route"
    );
    assert_eq!(get(&service, &format!("/query/?api_key={key}&api_key={key}"), &[]).status, 400);
}

#[test]
fn fault_46_without_a_good_key_the_answer_is_401_and_nothing_is_charged() {
    let (server, heads) = listening();
    let service = start(server);
    let (_, key) = issue(&service, &[]);
    let (_, other) = issue(&service, &[]);
    let mixed = format!("{}{}", &key[..21], &other[21..]);
    for (stated, detail) in
        [(None, "an API key is needed"), (Some("no-key"), "not known"), (Some(mixed.as_str()), "not known")]
    {
        let fields: Vec<(&str, &str)> = stated.iter().map(|key| ("x-api-key", *key)).collect();
        let answer = get(&service, "/", &fields);
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, problem["status"].as_u64()), (401, Some(401)));
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
        assert_eq!(answer.challenges, ["ApiKey in=\"header\", name=\"x-api-key\"", "Bearer"]);
    }
    let answer = get(&service, "/query/", &[]);
    let basic = "Basic realm=\"api\", charset=\"UTF-8\"";
    assert_eq!(answer.challenges, ["ApiKey in=\"query\", name=\"api_key\"", basic]);
    assert_eq!(with_key(&service, &key).left, Some(9), "only this one is charged");
    heads.recv_timeout(PATIENCE).unwrap();
    assert!(heads.try_recv().is_err(), "no other request has reached the server");
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    for series in ["{result=\"accepted\"} 1", "{result=\"missing\"} 2", "{result=\"unknown\"} 2"] {
        assert!(page.contains(&format!("tidegate_api_key_requests_total{series}\n")), "{series}");
    }
}

#[test]
fn a_key_that_changes_tier_keeps_what_it_has_used() {
    let (server, _heads) = listening();
    let service = start(server);
    let (id, key) = issue(&service, &["--tier", "free"]);
    let used = (0..8).map(|_| with_key(&service, &key).left.unwrap()).collect::<Vec<_>>();
    assert_eq!(used, [9, 8, 7, 6, 5, 4, 3, 2]);
    command(&service, &["set-tier", &id, "pro"]).unwrap();
    assert_eq!(with_key(&service, &key).left, Some(21), "of 30, 8 and this one are used: no refill");
    command(&service, &["set-tier", &id, "free"]).unwrap();
    assert_eq!(with_key(&service, &key).left, Some(0));
    assert_eq!(with_key(&service, &key).status, 429);
    command(&service, &["set-tier", &id, "pro"]).unwrap();
    assert_eq!(with_key(&service, &key).left, Some(19), "no lock-out: the denial cost nothing");
    command(&service, &["set-tier", &id]).unwrap();
    assert_eq!(with_key(&service, &key).status, 429, "without a tier the general numbers hold");
    let refused = command(&service, &["set-tier", &id, "gold"]).unwrap_err();
    assert!(refused.contains("422") && refused.contains("no policy has numbers for"), "{refused}");
}

#[test]
fn fault_46_a_key_opens_the_routes_that_it_names_and_those_whose_scope_it_has() {
    let (server, heads) = listening();
    let scoped = "[[route]]\nname = \"orders\"\npath = \"/orders/*\"\nupstream = \"app\"\nauth = \"key\"\n\
                  key_scope = \"orders:read\"\n";
    let service = start_with(&format!("{}{scoped}", file(server)));
    let (id, key) = issue(&service, &["--routes", "api,orders"]);
    let explained = |path: &str| {
        let asked = agent().get(service.url(&format!("/v1/explain/route?host=a&path={path}")));
        let mut reply = asked.query("header.x-api-key", &key).call().unwrap();
        reply.body_mut().read_json::<Value>().unwrap()["key"]["outcome"].as_str().unwrap().to_owned()
    };
    let on_query = || get(&service, &format!("/query/?api_key={key}"), &[]);
    let on_orders = || get(&service, "/orders/1", &[("x-api-key", &key)]);
    assert_eq!(with_key(&service, &key).left, Some(9));
    heads.recv_timeout(PATIENCE).unwrap();
    let other = on_query();
    assert!(other.status == 403 && other.body.contains("is not for this route"), "{}", other.body);
    let without = on_orders();
    assert!(without.status == 403 && without.body.contains("does not have the scope"), "{}", without.body);
    assert_eq!((explained("/"), explained("/orders/1")), ("accepted".to_owned(), "key_scope".to_owned()));
    // Another secret of it opens no more.
    let rotated = command(&service, &["rotate", &id, "--overlap", "0"]).unwrap();
    let second = rotated[0]["key"].as_str().unwrap();
    assert_eq!(rotated[0]["routes"], json!(["api", "orders"]));
    assert_eq!(get(&service, &format!("/query/?api_key={second}"), &[]).status, 403);
    let key = second.to_owned();
    let on_orders = || get(&service, "/orders/1", &[("x-api-key", &key)]).status;

    let changed = command(&service, &["set-scopes", &id, "orders:read", "orders:write"]).unwrap();
    assert_eq!(changed[0]["scopes"], json!(["orders:read", "orders:write"]));
    assert_eq!(on_orders(), 200);
    command(&service, &["set-scopes", &id]).unwrap();
    assert_eq!(on_orders(), 403);
    command(&service, &["set-scopes", &id, "orders:read"]).unwrap();
    command(&service, &["set-routes", &id, "query"]).unwrap();
    assert_eq!((on_orders(), with_key(&service, &key).status), (403, 403));
    assert_eq!(get(&service, &format!("/query/?api_key={key}"), &[]).status, 200);
    command(&service, &["set-tier", &id, "pro"]).unwrap();
    assert_eq!(with_key(&service, &key).status, 403, "what a change does not name stays");
    command(&service, &["set-routes", &id, "--all"]).unwrap();
    assert_eq!(
        (on_orders(), with_key(&service, &key).left),
        (200, Some(28)),
        "refusals were charged nothing"
    );
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    for series in ["{result=\"accepted\"} 5", "{result=\"route\"} 5", "{result=\"scope\"} 2"] {
        assert!(page.contains(&format!("tidegate_api_key_requests_total{series}\n")), "{series}: {page}");
    }

    for (arguments, said) in [
        (&["issue", "--consumer", "a", "--routes", "order"][..], "is no route"),
        (&["set-routes", id.as_str(), "api", "api"][..], "422"),
        (&["set-scopes", id.as_str(), "a b"][..], "422"),
        (&["set-routes", id.as_str()][..], "required"),
    ] {
        let refused = command(&service, arguments).unwrap_err();
        assert!(refused.contains(said), "{arguments:?}: {refused}");
    }
}

#[test]
fn a_key_is_rotated_with_an_overlap_expires_and_is_revoked() {
    let (server, _heads) = listening();
    let service = start(server);
    let (id, first) = issue(&service, &[]);
    let rotate = |key: &str, overlap: Value| {
        let url = service.url(&format!("/v1/keys/{key}/rotation"));
        let mut reply = agent().post(url).send_json(json!({"overlap_seconds": overlap})).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_json::<Value>().unwrap())
    };
    let until_401 = |key: &str| {
        let begun = monotonic();
        // On a route without limits.
        while get(&service, &format!("/query/?api_key={key}"), &[]).status != 401 {
            assert!(begun.elapsed() < PATIENCE, "it is good for ever");
        }
    };
    let rotated = command(&service, &["rotate", &id]).unwrap();
    let second = rotated[0]["key"].as_str().unwrap().to_owned();
    assert_eq!((rotated[0]["id"].as_str(), with_key(&service, &first).status), (Some(&*id), 200));
    assert_eq!(with_key(&service, &second).left, Some(8), "both count as one");
    let (status, reply) = rotate(&id, json!(1));
    assert_eq!((status, with_key(&service, &first).status), (200, 401), "the newest two are good");
    until_401(&second);
    let third = reply["key"].as_str().unwrap();
    assert_eq!(with_key(&service, third).status, 200);
    assert_eq!((rotate("nobody", json!(0)).0, rotate(&id, json!(-1)).0), (404, 422));

    let short = json!({"consumer": "acme", "lifetime_seconds": 1});
    let mut reply = agent().post(service.url("/v1/keys")).send_json(short).unwrap();
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["cache-control"]),
        (201, &"no-store".parse().unwrap())
    );
    let short: Value = reply.body_mut().read_json().unwrap();
    until_401(short["key"].as_str().unwrap());
    let told = with_key(&service, short["key"].as_str().unwrap()).body;
    assert!(told.contains("has expired"), "{told}");

    let stale = agent().delete(service.url(&format!("/v1/keys/{id}"))).header("if-match", "\"1\"");
    assert_eq!(stale.call().unwrap().status(), 412);
    command(&service, &["revoke", &id]).unwrap();
    assert_eq!(with_key(&service, third).status, 401);
    assert!(command(&service, &["revoke", &id]).unwrap_err().contains("404"));
    let listed = command(&service, &["list"]).unwrap();
    assert_eq!(listed.iter().map(|key| &key["id"]).collect::<Vec<_>>(), [&short["id"]]);
}

#[test]
fn fault_52_a_key_is_shown_once_written_nowhere_and_survives_a_kill() {
    let (server, _heads) = listening();
    let service = start(server);
    let (id, key) = issue(&service, &["--tier", "pro", "--days", "30"]);
    assert_eq!(with_key(&service, &key).status, 200);
    assert_eq!(get(&service, &format!("/query/?api_key={key}"), &[]).status, 200);
    let listed = command(&service, &["list"]).unwrap();
    let shown = &listed[0];
    assert_eq!((shown["id"].as_str(), shown["consumer"].as_str()), (Some(&*id), Some("acme")));
    assert!(shown["last_used"].is_string() && shown["expires"].is_string(), "{shown}");
    assert!(!shown.to_string().contains(&key), "{shown}");
    let explained = agent()
        .get(service.url("/v1/explain/route?host=a&path=/"))
        .query("header.x-api-key", &key)
        .call()
        .unwrap()
        .body_mut()
        .read_to_string()
        .unwrap();
    let said: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!((&said["key"]["outcome"], &said["key"]["tier"]), (&json!("accepted"), &json!("pro")));
    let log = service.path().join("access.log");
    let begun = monotonic();
    while fs::read_to_string(&log).unwrap_or_default().lines().count() < 2 {
        assert!(begun.elapsed() < PATIENCE, "the requests are not logged");
    }
    let lines = fs::read_to_string(&log).unwrap();
    assert!(lines.contains(&format!("\"key\":\"{id}\",\"consumer\":\"acme\"")), "{lines}");
    service.signal("KILL");
    let (data, ended) = service.wait_keeping_data();
    assert!(!ended.output.contains(&key) && !explained.contains(&key));
    no_file_has(data.path(), key.as_bytes());
    let http = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(data, &["--config", "tidegate.toml"], &http);
    assert_eq!(with_key(&service, &key).status, 200);
    service.signal("KILL");
    let (data, _) = service.wait_keeping_data();
    // Under another secret the digests are of other texts.
    let other = [http[0], ("TIDEGATE_GATEWAY_KEY_SECRET", "a-secret-of-the-operator")];
    let service = Tidegate::start_in(data, &["--config", "tidegate.toml"], &other);
    assert_eq!(with_key(&service, &key).status, 401);
}

#[test]
fn the_shipped_tiers_are_a_whole_file_that_gives_free_keys_20_at_once_and_pro_keys_200() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/tiers.toml");
    let check = |environment: &[(&str, &str)]| {
        let mut command = binary();
        let checked = command.args(["check", file]).envs(environment.iter().copied()).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        String::from_utf8(checked.stdout).unwrap()
    };
    let said = check(&[]);
    assert!(said.matches("warning").count() == 1 && said.contains("gateway.key_secret is not set"), "{said}");
    let said = check(&[("TIDEGATE_GATEWAY_KEY_SECRET", "a-secret-of-the-operator")]);
    assert!(!said.contains("warning"), "{said}");

    let (server, _heads) = listening();
    let text = fs::read_to_string(file).unwrap();
    let text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:3000", &server.to_string());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    let http = ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0");
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[http]);
    for (tier, rate, at_once) in [("free", 10.0, 20), ("pro", 100.0, 200)] {
        let (_, key) = issue(&service, &["--tier", tier]);
        let begun = monotonic();
        let admitted = (0..2 * at_once).filter(|_| with_key(&service, &key).status == 200).count();
        let since = begun.elapsed().as_secs_f64() * rate + 1.0;
        assert!(
            (at_once..=at_once + since as usize).contains(&admitted),
            "{tier}: {admitted}, of which {since} may have come back"
        );
    }
}

fn no_file_has(folder: &Path, secret: &[u8]) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            no_file_has(&entry.path(), secret);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "{} has the key", entry.path().display());
        }
    }
}

#[test]
fn going_back_to_a_revision_brings_routes_and_policies_back_and_no_revoked_key() {
    let service = start(listening().0);
    let (revoked, text) = issue(&service, &[]);
    let put = |limit: u64| {
        let document =
            json!({"limit": limit, "window_seconds": 3600, "key": ["api_key"], "tiers": {"free": {}}});
        let reply = agent().put(service.url("/v1/policies/per-key")).send_json(document).unwrap();
        assert_eq!(reply.status(), 200);
    };
    put(40);
    let newest = || {
        let mut reply = agent().get(service.url("/v1/policies")).call().unwrap();
        reply.body_mut().read_json::<Value>().unwrap()["revision"].as_u64().unwrap()
    };
    let then = newest();
    command(&service, &["revoke", &revoked]).unwrap();
    let (issued_since, other) = issue(&service, &["--tier", "free"]);
    put(50);
    let extra = json!({"path": "/extra", "respond": {"status": 204}});
    assert_eq!(agent().put(service.url("/v1/routes/extra")).send_json(extra).unwrap().status(), 200);
    let revert = |arguments: &[&str]| {
        let mut command = binary();
        command.arg("revert").args(arguments).args(["--server", &service.url("")]);
        let output = command.output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let (code, said) = revert(&[&then.to_string(), "--if-newest", &then.to_string()]);
    assert!(code == 1 && said.contains("somebody has changed something since"), "{said}");
    let known = newest();
    let (code, said) = revert(&[&then.to_string(), "--preview"]);
    let shown: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &shown["preview"], &shown["revision"]), (0, &json!(true), &json!(known)), "{said}");
    let [extra, policy] = [0_usize, 1].map(|place| &shown["changes"][place]["difference"]);
    assert_eq!((&extra["before"]["path"], &extra["after"]), (&json!("/extra"), &Value::Null));
    assert_eq!((&policy["before"]["limit"], &policy["after"]["limit"]), (&json!(50), &json!(40)));
    assert_eq!(newest(), known, "a preview changes nothing");
    let (code, said) = revert(&[&then.to_string(), "--if-newest", &known.to_string()]);
    let reply: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &reply["reverted_to"]), (0, &json!(then)), "{said}");
    let expected = json!([
        {"kind": "route", "name": "extra", "action": "delete"},
        {"kind": "policy", "name": "per-key", "action": "put"},
    ]);
    assert_eq!(reply["changes"], expected);
    let get = |path: &str| agent().get(service.url(path)).call().unwrap().body_mut().read_json::<Value>();
    assert_eq!(get("/v1/policies/per-key").unwrap()["limit"], 40);
    let ask = |key: &str| {
        let request = agent().get(format!("http://{}/", service.gateway[0])).header("x-api-key", key);
        request.call().unwrap().status().as_u16()
    };
    assert_eq!((ask(&text), ask(&other)), (401, 200), "{revoked} stays revoked, {issued_since} in force");
    let audit = get(&format!("/v1/audit?after={known}")).unwrap();
    let rows: Vec<_> = audit.as_array().unwrap().iter().map(|row| (&row["kind"], &row["action"])).collect();
    assert_eq!(rows, [(&json!("route"), &json!("delete")), (&json!("policy"), &json!("put"))], "{audit}");
    let (code, said) = revert(&[&(known + 100).to_string()]);
    assert!(code == 1 && said.contains("has not been yet"), "{said}");
    let bad = agent().post(service.url("/v1/revert")).send_json(json!({"revison": 1})).unwrap();
    assert_eq!(bad.status(), 422);
}
