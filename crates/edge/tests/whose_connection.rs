//! Whose connection it is: the PROXY protocol in and out, and the server name of TLS.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{Read, Write};
use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;
use support::{backend, connect, name_of, named, start, unchecked};
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
        client.shutdown(std::net::Shutdown::Write).unwrap();
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
    support::until("both have left", || stats.open.load(Relaxed) == 0);
    for (name, backend) in [("b.example", "two"), ("a.example", "one"), ("B.Example", "two")] {
        let (client, found) = visit(name);
        assert_eq!(found, backend, "{name}");
        drop(client);
        support::until("it has left", || stats.open.load(Relaxed) == 0);
    }
    assert_eq!(stats.affine.load(Relaxed), 3);
}
