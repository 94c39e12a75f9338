//! Bytes through the edge on real sockets: both ways, in bulk, half-closed, bounded in time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::{Peak, backend, connect, connect_from, name_of, named, start, unchecked, until};
use serde_json::json;

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let rio = named("rio");
    let running = start(json!({}), &[unchecked("rio", rio)], &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 3), "rio");
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "hello");
    let stats = running.listener.stats();
    until("the connection is over", || stats.open.load(Relaxed) == 0);
    until("its place at the backend is free", || running.edge.backends()[0].open == 0);
    assert_eq!((stats.placed.load(Relaxed), stats.traffic.read()), (1, (5, 8)));
    let report = &running.edge.backends()[0];
    assert_eq!((report.connections, report.bytes), (1, (5, 8)));
}

/// Much more than the buffers of sockets, in both directions at once: by copies at first, then by splice.
#[test]
fn bulk_arrives_whole_and_in_order() {
    const BYTES: usize = 64 << 20;
    let running = start(json!({}), &[unchecked("echo", named(""))], &[]);
    let mut client = connect(running.address);
    let mut writer = client.try_clone().unwrap();
    let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
    let writing = std::thread::spawn(move || {
        let mut chunk = Vec::new();
        for start in (0..BYTES).step_by(100_000) {
            chunk.clear();
            chunk.extend((start..BYTES.min(start + 100_000)).map(pattern));
            writer.write_all(&chunk).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = client.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        let right = buffer[..count].iter().zip(at..).all(|(byte, at)| *byte == pattern(at));
        assert!(right, "a byte after {at} is another");
        at += count;
    }
    assert_eq!(at, BYTES);
    writing.join().unwrap();
    let stats = running.listener.stats();
    until("the connection is over", || stats.open.load(Relaxed) == 0);
    assert_eq!(stats.traffic.read(), (BYTES as u64, BYTES as u64));
}

#[test]
fn fault_69_a_side_that_has_ended_may_still_be_talked_to() {
    // It answers only when it has seen the client's end.
    let late = backend(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).unwrap();
    });
    let running = start(json!({}), &[unchecked("late", late)], &[]);
    let mut client = connect(running.address);
    client.write_all(b"12345").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "5 bytes");
    // And the other way round: the backend ends first, and hears the client out.
    let heard = Arc::new(Peak::default());
    let first = backend({
        let heard = heard.clone();
        move |mut stream| {
            stream.write_all(b"bye").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"last words");
            heard.enter();
        }
    });
    let running = start(json!({}), &[unchecked("first", first)], &[]);
    let mut client = connect(running.address);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "bye");
    client.write_all(b"last words").unwrap();
    drop(client);
    until("the backend has heard the client out", || heard.most() == 1);
}

#[test]
fn fault_69_silence_is_bounded() {
    let silent = backend(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let running = start(json!({"idle_seconds": 0.3}), &[unchecked("silent", silent)], &[]);
    let mut client = connect(running.address);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the edge ends it");
    let running = start(json!({"longest_seconds": 0.3}), &[unchecked("echo", named("echo"))], &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 4), "echo");
    let mut ended = false;
    while !ended {
        ended = client.write_all(b"x").is_err() || client.read(&mut [0; 64]).map_or(true, |count| count == 0);
    }
    let stats = running.listener.stats();
    until("it is over however busy it is", || stats.open.load(Relaxed) == 0);
}

/// Bytes that a slow client does not take hold the backend up: they are not piled up here.
#[test]
fn a_slow_reader_slows_the_writer_down() {
    let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let fast = backend({
        let written = written.clone();
        move |mut stream| {
            let chunk = [7; 64 << 10];
            while stream.write_all(&chunk).is_ok() && written.fetch_add(chunk.len(), Relaxed) < 1 << 30 {}
        }
    });
    let running = start(json!({}), &[unchecked("fast", fast)], &[]);
    let client = connect(running.address);
    let still = || {
        let before = written.load(Relaxed);
        let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(1);
        assert!(receiver.recv_timeout(std::time::Duration::from_millis(1_500)).is_err());
        drop(sender);
        written.load(Relaxed) == before && before > 0
    };
    until("the backend stands still", still);
    assert!(written.load(Relaxed) < 64 << 20, "what is under way is what sockets and one pipe hold");
    drop(client);
}

#[test]
fn near_backends_are_preferred_and_clients_stay() {
    let (rio, dublin) = (named("rio...").to_string(), named("dublin").to_string());
    let backends = [
        json!({"name": "dublin", "address": dublin, "country": "IE", "region": "eu", "check": {"kind": "off"}}),
        json!({"name": "rio", "address": rio, "country": "BR", "region": "sa", "check": {"kind": "off"}}),
    ];
    let places = [
        json!({"networks": ["127.1.0.0/16"], "country": "BR", "region": "sa"}),
        json!({"networks": ["127.2.0.0/16"], "region": "eu"}),
    ];
    let running = start(json!({}), &backends, &places);
    for (source, name) in [("127.1.0.1", "rio..."), ("127.2.0.1", "dublin"), ("127.1.0.1", "rio...")] {
        assert_eq!(name_of(&mut connect_from(source, running.address), 6), name, "{source}");
    }
    let stats = running.listener.stats();
    assert_eq!(stats.affine.load(Relaxed), 1, "the third was there before");
    // The backend's country changes: clients that are known stay, others go where the score says.
    let mut moved = backends.clone();
    moved[1]["country"] = json!("AR");
    moved[1]["region"] = json!("us");
    running.edge.apply(&support::config(&moved, &places));
    assert_eq!(name_of(&mut connect_from("127.1.0.1", running.address), 6), "rio...");
    assert_eq!(name_of(&mut connect_from("127.1.0.2", running.address), 6), "dublin");
    let decisions = running.edge.decisions().to_json();
    let newest = &decisions["decisions"][0];
    assert_eq!(
        (&newest["client"], &newest["backend"], &newest["tier"], &newest["score"], &newest["known_by"]),
        (&json!("127.1.0.2"), &json!("dublin"), &json!("elsewhere"), &json!(300.0), &json!("network"))
    );
}

#[test]
fn a_reload_touches_no_running_connection() {
    let rio = named("rio");
    let running = start(json!({}), &[unchecked("rio", rio)], &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 3), "rio");
    let lima = named("lima");
    running.edge.apply(&support::config(&[unchecked("lima", lima)], &[]));
    client.write_all(b"still here").unwrap();
    assert_eq!(name_of(&mut client, 10), "still here");
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    // A changed limit does not forget who is there.
    let one = json!({"name": "lima", "address": lima.to_string(), "hard_limit": 1, "check": {"kind": "off"}});
    let mut held = connect(running.address);
    assert_eq!(name_of(&mut held, 4), "lima");
    running.edge.apply(&support::config(&[one], &[]));
    assert_eq!(
        name_of(&mut connect(running.address), 4),
        "",
        "it is full with the one that was there before"
    );
    let refused = &running.listener.stats().refused;
    assert_eq!(refused[tidegate_edge::stats::Refusal::Full as usize].load(Relaxed), 1);
}

#[test]
fn without_a_backend_the_connection_is_closed_at_once_and_counted() {
    let running = start(json!({}), &[], &[]);
    let mut client = connect(running.address);
    let ended = client.read(&mut [0]);
    assert!(matches!(ended, Ok(0)) || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    let refused = &running.listener.stats().refused;
    assert_eq!(refused[tidegate_edge::stats::Refusal::NoBackend as usize].load(Relaxed), 1);
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!(newest["refused"], "no_backend");
}

#[test]
fn two_apps_have_backends_of_their_own() {
    let (web, shop) = (named("web"), named("shop"));
    let mut of_shop = unchecked("shop", shop);
    of_shop["app"] = json!("shop");
    let running = start(json!({"app": "shop"}), &[unchecked("web", web), of_shop], &[]);
    for _ in 0..10 {
        assert_eq!(name_of(&mut connect(running.address), 4), "shop");
    }
}

#[test]
fn a_peer_that_resets_after_the_first_byte_is_not_taken_for_one_that_ends() {
    let resets = backend(|mut stream: TcpStream| {
        stream.write_all(b"1").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    });
    let running = start(json!({}), &[unchecked("resets", resets)], &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 1), "1");
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "cut, and not ended");
    until("it is counted", || running.edge.backends()[0].broken == 1);
}
