//! Changes that a running edge takes: of its file, and of the database of countries.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use crate::support::Tidegate;
use crate::support::edge::{connect_from, free, json, metric, until};
use serde_json::Value;
use tidegate_testkit::countries::{Written, maxmind};

const OWN: [(&str, &str); 2] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", "off")];

/// A backend that says its name of three letters, and then sends back what comes.
fn named(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                if stream.write_all(name.as_bytes()).is_ok() {
                    let mut reader = stream.try_clone().unwrap();
                    drop(std::io::copy(&mut reader, &mut stream));
                }
            });
        }
    });
    address
}

/// The next three letters; empty if the connection ends instead.
fn said(stream: &mut TcpStream) -> String {
    let mut name = [0; 3];
    let read = stream.read_exact(&mut name).map(|()| String::from_utf8(name.to_vec()).unwrap());
    read.unwrap_or_default()
}

fn visit(source: &str, edge: SocketAddr) -> (TcpStream, String) {
    let mut stream = connect_from(source, edge);
    let name = said(&mut stream);
    (stream, name)
}

/// Has the file read again, and waits until `holds` of what would become of a connection from 127.0.0.1.
fn reload(service: &Tidegate, text: &str, holds: impl Fn(&Value) -> bool) {
    // As one step, so that no half of it is read.
    fs::write(service.path().join("new.toml"), text).unwrap();
    fs::rename(service.path().join("new.toml"), service.path().join("edge.toml")).unwrap();
    service.signal("HUP");
    until("the file is in force", || holds(&json(service, "/v1/explain/edge?client_ip=127.0.0.1")));
}

#[test]
fn a_changed_listener_routes_new_connections_and_touches_no_running_one() {
    let (edge, old, new, far) = (free(), named("old"), named("new"), named("far"));
    let data = tempfile::tempdir().unwrap();
    let file = |more: &str, backends: &str, region: &str| {
        format!(
            "edge.listener = [{{ listen = \"{edge}\", {more} }}]\nedge.backend = [{backends}]\n\
             edge.place = [{{ networks = [\"127.0.0.0/8\"], region = \"{region}\" }}]\n"
        )
    };
    let first = format!("{{ name = \"old\", address = \"{old}\", region = \"sa\" }}");
    fs::write(data.path().join("edge.toml"), file("affinity = \"address\"", &first, "sa")).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let (mut held, name) = visit("127.0.0.1", edge);
    assert_eq!(name, "old");

    // The listener is for another app, whose near backend has room for one, and then refuses. The first app is gone.
    let more = "app = \"shop\", spill = \"never\", affinity = \"off\"";
    let backends = format!(
        "{{ name = \"new\", address = \"{new}\", app = \"shop\", region = \"sa\", hard_limit = 1 }}, \
         {{ name = \"far\", address = \"{far}\", app = \"shop\", region = \"eu\" }}"
    );
    reload(&service, &file(more, &backends, "sa"), |said| said["app"] == "shop" && said["spill"] == "never");
    let (near, name) = visit("127.0.0.1", edge);
    assert_eq!(name, "new");
    assert_eq!(visit("127.0.0.1", edge).1, "", "the near one is full, and nobody goes further");

    // The client is elsewhere by the file.
    reload(&service, &file(more, &backends, "eu"), |said| said["region"] == "eu");
    assert_eq!(visit("127.0.0.1", edge).1, "far");

    // A listener that is wrong changes nothing.
    let wrong = file("spill = \"sometimes\"", &first, "sa");
    fs::write(service.path().join("edge.toml"), wrong).unwrap();
    service.signal("HUP");
    let refused = || metric(&service, "tidegate_config_reloads_total{result=\"refused\"}");
    until("the file is refused", || refused() > 0);
    assert_eq!(visit("127.0.0.1", edge).1, "far");

    // The first one has lived through all of it, although neither its app nor its backend is in the file any more.
    for _ in 0..100 {
        held.write_all(b"abc").unwrap();
        assert_eq!(said(&mut held), "abc");
    }
    service.signal("TERM");
    drop((held, near));
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert!(!ended.output.contains("at the next start"), "{}", ended.output);
}

/// A ClientHello that asks for `name`.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let length = |extra: usize| u16::try_from(name.len() + extra).unwrap().to_be_bytes();
    let [whole, list, own] = [5, 3, 0].map(length);
    let extensions = [&[0, 0][..], &whole, &list, &[0], &own, name.as_bytes()].concat();
    let size = u16::try_from(extensions.len()).unwrap().to_be_bytes();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &size, &extensions].concat();
    let size = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &size[1..], &body].concat();
    let size = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&[22, 3, 1][..], &size, &message].concat()
}

#[test]
fn server_names_that_come_change_and_go_route_the_next_connections() {
    let (edge, old, new) = (free(), named("old"), named("new"));
    let data = tempfile::tempdir().unwrap();
    let file = |names: &str| {
        format!(
            "edge.listener = [{{ listen = \"{edge}\"{names} }}]\n\
             edge.backend = [{{ name = \"old\", address = \"{old}\" }}, \
             {{ name = \"new\", address = \"{new}\", app = \"shop\" }}]\n"
        )
    };
    fs::write(data.path().join("edge.toml"), file("")).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let asked = |name: &str| {
        let mut stream = connect_from("127.0.0.1", edge);
        stream.write_all(&hello(name)).unwrap();
        said(&mut stream)
    };
    assert_eq!(asked("a.shop.example"), "old");
    let applied = || metric(&service, "tidegate_config_reloads_total{result=\"applied\"}");
    for (names, expected) in [
        (Some("*.shop.example"), ["new", "new"]),
        (Some("b.shop.example"), ["old", "new"]),
        (None, ["old"; 2]),
    ] {
        let names =
            names.map(|name| format!(", server_names = [{{ names = [\"{name}\"], app = \"shop\" }}]"));
        let before = applied();
        reload(&service, &file(&names.unwrap_or_default()), |_| applied() > before);
        assert_eq!(["a.shop.example", "b.shop.example"].map(asked), expected);
    }
    service.signal("TERM");
    let ended = service.wait();
    assert!(!ended.output.contains("at the next start"), "{}", ended.output);
}

#[test]
fn a_listener_whose_guard_and_app_change_lets_nobody_past_the_guard() {
    let (edge, old, new) = (free(), named("old"), named("new"));
    let data = tempfile::tempdir().unwrap();
    let file = |more: &str| {
        format!(
            "edge.listener = [{{ listen = \"{edge}\"{more} }}]\n\
             edge.backend = [{{ name = \"old\", address = \"{old}\" }}, \
             {{ name = \"new\", address = \"{new}\", app = \"shop\" }}]\n"
        )
    };
    fs::write(data.path().join("edge.toml"), file("")).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let (mut held, name) = visit("127.0.0.1", edge);
    assert_eq!(name, "old");
    // The new app is for clients that come through a proxy: nobody else may reach it.
    let guarded = file(", app = \"shop\", proxy_protocol_from = [\"127.0.0.1\"]");
    reload(&service, &guarded, |said| said["app"] == "shop");
    let proxied = |header: &[u8]| {
        let mut stream = connect_from("127.0.0.1", edge);
        stream.write_all(header).unwrap();
        said(&mut stream)
    };
    until("the new app is served", || proxied(b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n") == "new");
    until("the guard is there", || proxied(b"GET / HTTP/1.1\r\n\r\n").is_empty());
    // It counts on where the one before it was, whose connection goes on.
    let placed = format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"score\"}}");
    assert!(metric(&service, &placed) >= 2);
    held.write_all(b"abc").unwrap();
    assert_eq!(said(&mut held), "abc");
    // The same app without the guard.
    reload(&service, &file(", app = \"shop\""), |said| said["app"] == "shop");
    until("the guard is gone", || visit("127.0.0.1", edge).1 == "new");
    service.signal("TERM");
    drop(held);
    let ended = service.wait();
    assert!(!ended.output.contains("the next start"), "{}", ended.output);
}

/// Writes a database in which 127.0.0.0/8 is in a country, and 2001:db8::/32 in Ireland.
fn write_countries(file: &Path, country: &str) {
    let loopback = format!("{}01111111", "0".repeat(96));
    let networks: [(&str, &[u8]); 2] =
        [(&loopback, &maxmind(country)), ("00100000000000010000110110111000", &maxmind("IE"))];
    let new = file.with_extension("new");
    fs::write(&new, Written::V6.bytes(&networks)).unwrap();
    fs::rename(new, file).unwrap();
}

#[test]
fn a_new_database_of_countries_is_used_and_a_bad_one_keeps_the_old() {
    let (edge, rio, cordoba) = (free(), named("rio"), named("cor"));
    let data = tempfile::tempdir().unwrap();
    let countries = data.path().join("countries.mmdb");
    write_countries(&countries, "BR");
    let file = format!(
        "edge.country_database = {countries:?}\n\
         edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\n\
         edge.backend = [{{ name = \"rio\", address = \"{rio}\", country = \"BR\" }}, \
         {{ name = \"cordoba\", address = \"{cordoba}\", country = \"AR\" }}]\n"
    );
    fs::write(data.path().join("edge.toml"), file).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let country = |address: &str| {
        let explained = json(&service, &format!("/v1/explain/edge?client_ip={address}"));
        (explained["country"].clone(), explained["known_by"].clone())
    };
    let by_database = |country: &str| (country.into(), "database".into());
    assert_eq!(visit("127.0.0.1", edge).1, "rio");
    assert_eq!(country("2001:db8::7"), by_database("IE"));
    assert_eq!(country("2001:db9::7"), (Value::Null, "nothing".into()));

    write_countries(&countries, "AR");
    until("the new one is read", || country("127.0.0.1") == by_database("AR"));
    assert_eq!(visit("127.0.0.1", edge).1, "cor");

    fs::write(&countries, b"no database").unwrap();
    let warnings = || json(&service, "/v1/warnings").to_string();
    until("the bad one is refused", || warnings().contains("the database of countries is refused"));
    assert_eq!((country("127.0.0.1"), country("2001:db8::7")), (by_database("AR"), by_database("IE")));
    assert_eq!(visit("127.0.0.1", edge).1, "cor");

    write_countries(&countries, "BR");
    until("a good one is read again", || country("127.0.0.1") == by_database("BR"));
    assert_eq!(visit("127.0.0.1", edge).1, "rio");
}

#[test]
fn a_first_listener_that_comes_later_has_the_countries_and_is_told_what_it_waits_for() {
    let (edge, rio) = (free(), named("rio"));
    let data = tempfile::tempdir().unwrap();
    let countries = data.path().join("countries.mmdb");
    write_countries(&countries, "BR");
    let names = free();
    let file = |listener: &str| {
        format!(
            "edge.country_database = {countries:?}\nedge.dns_listen = \"{names}\"\n{listener}\
             edge.backend = [{{ name = \"rio\", address = \"{rio}\", country = \"BR\" }}]\n"
        )
    };
    fs::write(data.path().join("edge.toml"), file("")).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let listener = format!("edge.listener = [{{ listen = \"{edge}\" }}]\n");
    reload(&service, &file(&listener), |said| said["country"] == "BR" && said["known_by"] == "database");
    assert_eq!(visit("127.0.0.1", edge).1, "rio");
    assert!(TcpStream::connect(names).is_err(), "names are answered from the next start on");
    service.signal("TERM");
    let ended = service.wait();
    let told =
        |line: &str| line.contains("it is opened at the next start") && line.contains("edge.dns_listen");
    assert!(ended.output.lines().any(told), "{}", ended.output);
}
