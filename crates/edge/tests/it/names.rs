//! The server of names while its process drains, on a port that it shares with the next one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, Running, start, unchecked, until};
use serde_json::json;
use tidegate_edge::dns::NameServer;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::Stage;
use tidegate_net::listen::{ListenConfig, Listeners, bind_datagrams};
use tidegate_net::permits::Permits;
use tidegate_net::stats::Stats;

/// For the address of `default.internal`.
const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07default\x08internal\0\0\x01\0\x01";

/// An edge with one backend, whose address ends with this number, and its server of names at `at`.
fn naming(at: SocketAddr, last: u8) -> Running {
    let backend = unchecked("one", SocketAddr::from(([10, 0, 0, last], 80)));
    let running = start(json!({}), &[backend], &[]);
    let one = NonZeroUsize::MIN;
    let tcp = Listeners::bind(&ListenConfig { share_port: true, ..ListenConfig::new(at, one) }).unwrap();
    let udp = bind_datagrams(at, true).unwrap();
    let gate = Gate {
        permits: Permits::new(10),
        buffers: Buffers::new(1 << 20),
        drain: running.drain.clone(),
        stats: Arc::new(Stats::new(1, &["other"])),
    };
    let server =
        NameServer::new(running.edge.clone(), Vec::new(), tidegate_edge::pops::Pops::default(), Vec::new());
    server.start(running.cores.as_ref().unwrap(), udp, tcp, gate);
    running
}

/// The last byte of the address that is answered, asked for as often as it takes.
fn answer(at: SocketAddr) -> u8 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut reply = [0; 512];
    let began = tidegate_net::clock::monotonic();
    while began.elapsed() < PATIENCE {
        socket.send_to(QUESTION, at).unwrap();
        if let Ok(length) = socket.recv(&mut reply) {
            return reply[length - 1];
        }
    }
    panic!("nobody answers");
}

#[test]
fn fault_23_a_server_of_names_that_drains_leaves_all_questions_to_the_next_one() {
    let at = SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let first = naming(at, 1);
    assert_eq!(answer(at), 1);
    let mut asking = TcpStream::connect(at).unwrap();
    asking.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = |asking: &mut TcpStream| {
        let length = u16::try_from(QUESTION.len()).unwrap().to_be_bytes();
        asking.write_all(&[&length[..], QUESTION].concat()).unwrap();
        let mut length = [0; 2];
        asking.read_exact(&mut length).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        asking.read_exact(&mut reply).unwrap();
        reply.last().copied()
    };
    assert_eq!(ask(&mut asking), Some(1));
    let _next = naming(at, 2);
    // The kernel spreads askers over both by their ports.
    until("the second answers", || answer(at) == 2);
    until("so does the first", || answer(at) == 1);
    first.drain.advance(Stage::Closed);
    assert_eq!(asking.read(&mut [0]).unwrap(), 0, "a connection ends when its questions are answered");
    until("the next one answers all", || (0..40).all(|_| answer(at) == 2));
}
