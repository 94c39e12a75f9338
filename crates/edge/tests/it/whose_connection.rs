//! Whose connection it is: the PROXY protocol in and out, and the server name of TLS.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown};
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{backend, backend_on, connect, connect_from, name_of, named, start, unchecked, until};
use serde_json::json;
use tidegate_edge::explain::{Question, explain};
use tidegate_edge::stats::Refusal;

#[test]
fn backends_are_told_whose_connection_it_is() {
    let echo = named("");
    for (version, begins) in
        [("v1", &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c")]
    {
        let running = start(json!({"proxy_protocol_to": version}), &[unchecked("echo", echo)], &[]);
        let mut client = connect(running.address);
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert!(all.starts_with(begins) && all.ends_with(b"hello"), "{version}: {all:?}");
        let own = client.local_addr().unwrap().port();
        let port = if version == "v1" { format!(" {own} ").into_bytes() } else { own.to_be_bytes().to_vec() };
        assert!(all.windows(port.len()).any(|window| window == port), "{version}: {all:?}");
    }
}

#[test]
fn fault_43_only_listed_proxies_say_whose_a_connection_is() {
    let places = [json!({"networks": ["203.0.113.0/24"], "country": "BR"})];
    let mut near = unchecked("near", named("near"));
    near["country"] = json!("BR");
    let backends = [unchecked("else", named("else")), near];
    let running = start(json!({"proxy_protocol_from": ["127.0.0.1"]}), &backends, &places);
    let mut client = connect(running.address);
    client.write_all(b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n").unwrap();
    assert_eq!(name_of(&mut client, 4), "near");
    let mut liar = connect(running.address);
    liar.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(name_of(&mut liar, 4), "");
    let running = start(json!({"proxy_protocol_from": ["192.0.2.1"]}), &backends, &places);
    let mut stranger = connect(running.address);
    drop(stranger.write_all(b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n"));
    assert_eq!(name_of(&mut stranger, 4), "");
    assert_eq!(running.listener.stats().refused[Refusal::Unproxied as usize].load(Relaxed), 1);
}

/// A header of version 2 that says that a connection is of this client.
fn version_two(client: &str) -> Vec<u8> {
    let (client, server): (Ipv6Addr, Ipv6Addr) = (client.parse().unwrap(), Ipv6Addr::LOCALHOST);
    let addresses = [&client.octets()[..], &server.octets(), &[0, 1, 0, 2]].concat();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24"[..], &addresses].concat()
}

#[test]
fn an_ipv6_client_is_known_by_its_network_of_64_bits_also_where_a_proxy_says_so() {
    let backends = [unchecked("one.", named("one.")), unchecked("two.", named("two."))];
    let places = [json!({"networks": ["2001:db8:1::/48"], "country": "BR"})];
    let running = start(json!({"proxy_protocol_from": ["127.0.0.0/8"]}), &backends, &places);
    let visit = |client: &str| {
        let mut stream = connect(running.address);
        stream.write_all(&version_two(client)).unwrap();
        let name = name_of(&mut stream, 4);
        (stream, name)
    };
    let (_held, name) = visit("2001:db8:1:2::7");
    assert_eq!(name, "one.");
    assert_eq!(visit("2001:db8:1:2:ffff::8").1, "one.", "it is of the same household");
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!(
        (&newest["client"], &newest["country"], &newest["affine"]),
        (&json!("2001:db8:1:2:ffff::8"), &json!("BR"), &json!(true))
    );
    assert_eq!(visit("2001:db8:1:3::7").1, "two.", "the one with fewer connections");
}

#[test]
fn connections_come_and_go_on_by_ipv6() {
    let echo = backend_on("[::1]:0", |mut stream| {
        let mut reader = stream.try_clone().unwrap();
        if std::io::copy(&mut reader, &mut stream).is_ok() {
            drop(stream.shutdown(Shutdown::Write));
        }
    });
    for (version, begins) in [("v1", &b"PROXY TCP6 ::1 ::1 "[..]), ("v2", &version_two("::1")[..48])] {
        let listener = json!({"listen": "[::1]:0", "proxy_protocol_to": version});
        let running = start(listener, &[unchecked("echo", echo)], &[]);
        assert!(running.address.is_ipv6());
        for visit in 0..2 {
            let mut client = connect(running.address);
            client.write_all(b"hello").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert!(all.starts_with(begins) && all.ends_with(b"hello"), "{version}: {all:?}");
            assert_eq!(running.listener.stats().affine.load(Relaxed), visit);
        }
    }
}

/// A ClientHello that asks for `name`.
fn hello(name: &str) -> Vec<u8> {
    let length = |extra: usize| u16::try_from(name.len() + extra).unwrap().to_be_bytes();
    let mut extensions = vec![0, 0];
    extensions.extend(length(5));
    extensions.extend(length(3));
    extensions.push(0);
    extensions.extend(length(0));
    extensions.extend(name.as_bytes());
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let size = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1, size[1], size[2], size[3]][..], &body].concat();
    let record = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&[22, 3, 1, record[0], record[1]][..], &message].concat()
}

#[test]
fn server_names_lead_to_apps_and_the_backend_gets_every_byte() {
    // Each says who it is when it has read the whole hello, and what it read.
    let of = |name: &'static str| {
        backend(move |mut stream| {
            let mut first = vec![0; hello("a.shop.example").len()];
            if stream.read_exact(&mut first).is_ok() {
                stream.write_all(name.as_bytes()).unwrap();
                stream.write_all(&first).unwrap();
            }
        })
    };
    let document = |name: &'static str| {
        let mut document = unchecked(name, of(name));
        document["app"] = json!(name);
        document
    };
    let listener = json!({"app": "else", "server_names": [{"names": ["*.shop.example"], "app": "shop"}]});
    let running = start(listener, &[document("shop"), document("else")], &[]);
    for (name, app) in [("a.shop.example", "shop"), ("a.what.example", "else")] {
        let mut client = connect(running.address);
        let hello = hello(name);
        // However it is cut.
        let (first, rest) = hello.split_at(7);
        client.set_nodelay(true).unwrap();
        client.write_all(first).unwrap();
        client.write_all(rest).unwrap();
        assert_eq!(name_of(&mut client, 4), app);
        let mut seen = vec![0; hello.len()];
        client.read_exact(&mut seen).unwrap();
        assert_eq!(seen, hello);
    }
    let mut plain = connect(running.address);
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(name_of(&mut plain, 4), "");
    assert_eq!(running.listener.stats().refused[Refusal::NoServerName as usize].load(Relaxed), 1);
}

#[test]
fn a_client_that_asks_for_two_servers_is_known_by_each() {
    // They read the hello and say who they are.
    let of = |name: &'static str| {
        backend(move |mut stream| {
            let mut first = vec![0; hello("a.example").len()];
            if stream.read_exact(&mut first).is_ok() && stream.write_all(name.as_bytes()).is_ok() {
                drop(stream.read_to_end(&mut Vec::new()));
            }
        })
    };
    let backends = [unchecked("one", of("one")), unchecked("two", of("two"))];
    let running = start(json!({"affinity": "server_name"}), &backends, &[]);
    let visit = |name: &str| {
        let mut client = connect(running.address);
        client.write_all(&hello(name)).unwrap();
        let backend = name_of(&mut client, 3);
        (client, backend)
    };
    let stats = running.listener.stats();
    // The first goes to the first, the second to the one that has fewer.
    let (first, second) = (visit("a.example"), visit("b.example"));
    assert_eq!((&*first.1, &*second.1), ("one", "two"));
    drop(first);
    drop(second);
    until("both have left", || stats.open.load(Relaxed) == 0);
    for (name, backend) in [("b.example", "two"), ("a.example", "one"), ("B.Example", "two")] {
        let (client, found) = visit(name);
        assert_eq!(found, backend, "{name}");
        drop(client);
        until("it has left", || stats.open.load(Relaxed) == 0);
    }
    assert_eq!(stats.affine.load(Relaxed), 3);
}

#[test]
fn a_client_of_two_apps_of_a_listener_stays_at_a_backend_of_each() {
    // They read the hello and say who they are.
    let of = |name: &'static str, app: &str| {
        let reads = backend(move |mut stream| {
            let mut first = vec![0; hello("a.shop.example").len()];
            if stream.read_exact(&mut first).is_ok() && stream.write_all(name.as_bytes()).is_ok() {
                drop(stream.read_to_end(&mut Vec::new()));
            }
        });
        let mut document = unchecked(name, reads);
        document["app"] = json!(app);
        document
    };
    let backends = [of("one", "shop"), of("two", "shop"), of("web", "web")];
    let listener = json!({"app": "web", "server_names": [{"names": ["*.shop.example"], "app": "shop"}]});
    let running = start(listener, &backends, &[]);
    let stats = running.listener.stats();
    let visit = |source: &str, name: &str| {
        let mut client = connect_from(source, running.address);
        client.write_all(&hello(name)).unwrap();
        let backend = name_of(&mut client, 3);
        (client, backend)
    };
    // The first of the shop's has one already, so this client goes to the second.
    let (other, own) = (visit("127.0.0.2", "a.shop.example"), visit("127.0.0.1", "a.shop.example"));
    assert_eq!((&*other.1, &*own.1), ("one", "two"));
    drop((other, own));
    until("both have left", || stats.open.load(Relaxed) == 0);
    for (name, backend, affine) in
        [("a.what.example", "web", 0), ("a.shop.example", "two", 1), ("a.what.example", "web", 2)]
    {
        let (client, found) = visit("127.0.0.1", name);
        assert_eq!((&*found, stats.affine.load(Relaxed)), (backend, affine), "{name}");
        let question = Question {
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            listener: None,
            server_name: Some(name.to_owned()),
        };
        let said = explain(std::slice::from_ref(&running.listener), &question).unwrap();
        assert_eq!((&said["was_at"], &said["next"]), (&json!(backend), &json!(backend)), "{said}");
        drop(client);
        until("it has left", || stats.open.load(Relaxed) == 0);
    }
}

#[test]
fn a_client_that_does_not_say_which_server_it_wants_is_let_go() {
    let listener = json!({"server_names": [{"names": ["a.example"], "app": "shop"}]});
    let running = start(listener, &[unchecked("web", named("web"))], &[]);
    let (mut silent, mut slow) = (connect(running.address), connect(running.address));
    // Half of a hello is no hello.
    slow.write_all(&hello("a.example")[..20]).unwrap();
    for client in [&mut silent, &mut slow] {
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
    }
    let refused = &running.listener.stats().refused[Refusal::NoServerName as usize];
    until("both are counted", || refused.load(Relaxed) == 2);
    assert_eq!(running.edge.backends()[0].connections, 0, "no backend was asked");
}
