//! Limits of the edge's listeners, of the built binary: connections by rate and at a time, and bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::edge_reload::hello;
use crate::support::edge::{connect_from, echo, free, json, metric, until, visit};
use crate::support::{Tidegate, binary};
use serde_json::Value;
use socket2::SockRef;
use tidegate_net::clock::monotonic;

/// An edge whose listener has these keys more, in a process with these policies.
fn start(edge: SocketAddr, listener: &str, policies: &str, more: &[(&str, &str)]) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("edge.toml"), file(edge, echo(), listener, policies)).unwrap();
    let own = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", "off")];
    Tidegate::start_in(data, &["--config", "edge.toml"], &[&own, more].concat())
}

fn file(edge: SocketAddr, backend: SocketAddr, listener: &str, policies: &str) -> String {
    format!(
        "policy = [{policies}]\n\
         edge.listener = [{{ listen = \"{edge}\", {listener} }}]\n\
         edge.backend = [{{ name = \"echo\", address = \"{backend}\", check = {{ kind = \"off\" }} }}]\n"
    )
}

fn refused(service: &Tidegate, edge: SocketAddr, reason: &str) -> u64 {
    metric(service, &format!("tidegate_edge_refused_total{{listener=\"{edge}\",reason=\"{reason}\"}}"))
}

#[test]
fn a_client_has_so_many_connections_in_a_window_and_a_listener_so_many_in_all() {
    let edge = free();
    let policies = "{ name = \"per-client\", limit = 3, window_seconds = 3600, key = [\"client_id\"] }, \
                    { name = \"in-all\", limit = 5, window_seconds = 3600, key = [\"listener\"] }";
    let service = start(edge, "policies = [\"per-client\", \"in-all\"]", policies, &[]);
    let served = |source: &str| (0..4).filter(|_| visit(source, edge).1).count();
    assert_eq!(served("127.1.0.1"), 3);
    assert_eq!(served("127.1.0.2"), 2, "what the first one was denied is charged to nobody");
    assert_eq!(refused(&service, edge, "quota"), 3);
    let decisions = json(&service, "/v1/edge/decisions");
    let newest = &decisions["decisions"][0];
    assert_eq!((&newest["client"], &newest["refused"]), (&"127.1.0.2".into(), &"quota".into()), "{newest}");
}

#[test]
fn fault_44_a_permit_is_held_as_long_as_its_connection_and_comes_back_however_that_ends() {
    let edge = free();
    let policies = "{ name = \"slots\", algorithm = \"concurrency\", limit = 2, lease_seconds = 4, key = [\"client_id\"] }";
    let service = start(edge, "policies = [\"slots\"]", policies, &[]);
    let is_full = || !visit("127.0.0.1", edge).1;
    let (first, is_served) = visit("127.0.0.1", edge);
    assert!(is_served);
    let (second, is_served) = visit("127.0.0.1", edge);
    assert!(is_served);
    // For longer than the lease, which is renewed.
    let opened = monotonic();
    while opened.elapsed() < Duration::from_secs(6) {
        assert!(is_full(), "a permit is given twice after {:?}", opened.elapsed());
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(visit("127.0.0.2", edge).1, "another client has its own");
    drop(first);
    until("the permit comes back", || !is_full());
    SockRef::from(&second).set_linger(Some(Duration::ZERO)).unwrap();
    drop(second);
    until("both are there", || {
        let ((_one, first), (_other, second)) = (visit("127.0.0.1", edge), visit("127.0.0.1", edge));
        first && second
    });
    assert!(refused(&service, edge, "quota") > 0);
}

#[test]
fn bytes_wait_until_there_are_more_and_none_is_lost() {
    const SENT: usize = 400_000;
    const BURST: usize = 100_000;
    const RATE: usize = 300_000;
    let edge = free();
    let policies = format!(
        "{{ name = \"bytes\", algorithm = \"token_bucket\", limit = {RATE}, window_seconds = 1, burst = {BURST}, \
         key = [\"client_id\"] }}"
    );
    let service = start(edge, "byte_policies = [\"bytes\"]", &policies, &[]);
    let began = monotonic();
    let client = connect_from("127.0.0.1", edge);
    let mut writer = client.try_clone().unwrap();
    let sent: Vec<u8> = (0..SENT).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
    let came = std::thread::scope(|scope| {
        let (mut reader, mut came) = (&client, Vec::new());
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        // Meanwhile another client has bytes of its own.
        assert!(visit("127.0.0.2", edge).1);
        reader.read_to_end(&mut came).unwrap();
        came
    });
    assert!(came == sent, "{} of {SENT} bytes came back", came.len());
    // Each byte is charged on its way there and on its way back.
    let least = Duration::from_secs_f64((2 * SENT - BURST) as f64 / RATE as f64);
    assert!(began.elapsed() >= least, "{:?} is less than {least:?}", began.elapsed());
    assert!(metric(&service, &format!("tidegate_edge_byte_waits_total{{listener=\"{edge}\"}}")) > 0);
    let open = format!("tidegate_edge_open{{listener=\"{edge}\"}}");
    until("nobody is left", || metric(&service, &open) == 0);
}

#[test]
fn exactly_the_bytes_that_passed_are_charged() {
    // Four bytes each way; what was taken ahead is given back, but for the rest of a unit.
    for (unit, units) in [(1, 8), (1_024, 1), (65_536, 1)] {
        charged_in_units(unit, units);
    }
}

fn charged_in_units(unit: u64, units: u64) {
    let edge = free();
    let policies = "{ name = \"bytes\", algorithm = \"fixed_window\", limit = 1000000, window_seconds = 7776000, \
                    key = [\"client_id\"] }";
    let listener = format!("byte_policies = [\"bytes\"], byte_unit = {unit}");
    let service = start(edge, &listener, policies, &[]);
    for visits in 1..=3 {
        let (client, is_served) = visit("127.0.0.1", edge);
        assert!(is_served);
        drop(client);
        let remaining = || {
            let explained = json(&service, "/v1/explain?client_id=127.0.0.1&cost=0");
            explained["policies"][0]["verdict"]["remaining"].as_u64()
        };
        until("the rest is given back", || remaining() == Some(1_000_000 - units * visits));
    }
}

/// What becomes of a connection that says its server name when its listener has gone from the file, and its policy with it:
/// whether it is served, and why not. `None`: it has waited too long for that.
fn late_connection(environment: &[(&str, &str)]) -> Option<(bool, Value)> {
    let edge = free();
    let [few, other] = ["few", "other"].map(|name| {
        format!("{{ name = \"{name}\", limit = 100, window_seconds = 3600, key = [\"client_id\"] }}")
    });
    let listener = "policies = [\"few\"], server_names = [{ names = [\"a.test\"], app = \"shop\" }]";
    let service = start(edge, listener, &few, environment);
    let mut late = connect_from("127.0.0.1", edge);
    let text = file(free(), echo(), "policies = [\"other\"]", &other);
    std::fs::write(service.path().join("edge.toml"), text).unwrap();
    service.signal("HUP");
    until("the policy is gone", || !json(&service, "/v1/policies").to_string().contains("few"));
    until("so is the listener", || TcpStream::connect(edge).is_err());
    // If it is closed already, it is not read.
    drop(late.write_all(&hello("b.test")));
    let is_served = matches!(late.read(&mut [0]), Ok(1));
    let decision = json(&service, "/v1/edge/decisions")["decisions"][0].clone();
    (!decision.is_null()).then(|| (is_served, decision["refused"].clone()))
}

#[test]
fn a_policy_that_is_gone_refuses_its_listeners_connections_unless_that_is_allowed() {
    for (answer, expected) in [("deny", (false, "no_policy".into())), ("allow", (true, Value::Null))] {
        let environment = [("TIDEGATE_EDGE_ON_MISSING_POLICY", answer)];
        // The machine may pause for longer than a connection may.
        let became = (0..20).find_map(|_| late_connection(&environment));
        assert_eq!(became, Some(expected), "{answer}");
    }
}

#[test]
fn a_listener_lists_policies_of_its_file() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("edge.toml");
    let policy = "{ name = \"few\", limit = 1, window_seconds = 1, key = [\"client_id\"] }";
    std::fs::write(&path, file(free(), echo(), "policies = [\"few\"], byte_policies = [\"many\"]", policy))
        .unwrap();
    let ended = binary().arg("check").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert!(!ended.status.success(), "{said}");
    let mistake = "edge.listener[0].byte_policies[0]: is \"many\", which is no policy of the file";
    assert!(said.contains(mistake) && !said.contains(".policies[0]"), "{said}");
}
