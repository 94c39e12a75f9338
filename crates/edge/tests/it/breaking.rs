//! Sides that break off: the other one gets what had come from them, however slow it is, and then the reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::support::{PATIENCE, backend, connect, start, unchecked, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};

/// More than a slow reader's kernel takes, and less than the edge and its kernel do.
const BYTES: usize = 200 << 10;

/// A connection whose kernel takes next to nothing before it is read.
fn connect_slow(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the other end's kernel has been sent everything.
fn until_sent(stream: &TcpStream) {
    SockRef::from(stream).set_tcp_notsent_lowat(1).unwrap();
    until("everything was sent", || {
        let mut asked = [PollFd::new(stream, PollFlags::OUT)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        !asked[0].revents().is_empty()
    });
}

/// Ends with a reset, whatever was read.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Everything up to the end, and whether that was a reset.
fn read_all(mut stream: &TcpStream) -> (usize, bool) {
    let (mut count, mut buffer) = (0, vec![0; 10_000]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (count, false),
            Ok(more) => count += more,
            Err(error) => return (count, error.kind() == ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn fault_69_a_slow_client_gets_all_that_its_backend_sent_before_it_reset_and_then_the_reset() {
    for says_more in [false, true] {
        let (told, has_reset) = sync_channel(1);
        let resets = backend(move |mut stream| {
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(&[b'y'; BYTES]).unwrap();
            until_sent(&stream);
            reset(stream);
            told.send(()).unwrap();
        });
        let running = start(json!({}), &[unchecked("resets", resets)], &[]);
        let mut client = connect_slow(running.address);
        client.write_all(b"q").unwrap();
        has_reset.recv().unwrap();
        if says_more {
            // That it cannot be passed on says nothing of what has come.
            client.write_all(b"more").unwrap();
        }
        assert_eq!(
            read_all(&client),
            (BYTES, true),
            "all of it, and that it was cut; says more: {says_more}"
        );
        until("it is counted", || running.edge.backends()[0].broken == 1);
    }
}

#[test]
fn fault_69_a_request_that_was_not_read_to_its_end_takes_nothing_of_the_reply() {
    // It has answered and closes: its kernel resets, for one byte of the request was not read.
    let (told, has_closed) = sync_channel(1);
    let hasty = backend(move |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[b'y'; BYTES]).unwrap();
        until_sent(&stream);
        drop(stream);
        told.send(()).unwrap();
    });
    let running = start(json!({}), &[unchecked("hasty", hasty)], &[]);
    let mut client = connect_slow(running.address);
    client.write_all(b"qq").unwrap();
    has_closed.recv().unwrap();
    assert_eq!(read_all(&client), (BYTES, true));
}

#[test]
fn fault_69_a_slow_backend_gets_all_that_its_client_sent_before_it_reset_and_then_the_reset() {
    let ((told, has_reset), (tells, read)) = (sync_channel::<()>(1), sync_channel(1));
    let has_reset = std::sync::Mutex::new(has_reset);
    let slow = backend(move |mut stream| {
        SockRef::from(&stream).set_recv_buffer_size(4 << 10).unwrap();
        stream.write_all(b"a banner that nobody reads").unwrap();
        has_reset.lock().unwrap().recv().unwrap();
        tells.send(read_all(&stream)).unwrap();
    });
    let running = start(json!({}), &[unchecked("slow", slow)], &[]);
    let mut client = connect(running.address);
    client.write_all(&[b'x'; BYTES]).unwrap();
    until_sent(&client);
    reset(client);
    told.send(()).unwrap();
    assert_eq!(read.recv_timeout(PATIENCE).unwrap(), (BYTES, true));
}

#[test]
fn fault_69_a_reply_that_had_ended_is_whole_for_a_slow_client_whatever_it_sends_afterwards() {
    let (told, has_closed) = sync_channel(1);
    let closes = backend(move |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[b'y'; 1 << 10]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        told.send(()).unwrap();
        // What comes now is not read, and the close is a reset.
        let mut asked = [PollFd::new(&stream, PollFlags::IN)];
        poll(&mut asked, None).unwrap();
    });
    let running = start(json!({}), &[unchecked("closes", closes)], &[]);
    let mut client = connect_slow(running.address);
    client.write_all(b"q").unwrap();
    has_closed.recv().unwrap();
    let mut reply = vec![0; 1 << 10];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end of the reply is an end");
    client.write_all(b"more").unwrap();
    drop(client);
    until("the connection is over", || running.edge.backends()[0].open == 0);
}

#[test]
fn fault_69_a_client_that_takes_nothing_more_is_waited_for_no_longer_than_for_an_idle_one() {
    let resets = backend(move |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[b'y'; BYTES]).unwrap();
        until_sent(&stream);
        reset(stream);
    });
    let running = start(json!({"idle_seconds": 1}), &[unchecked("resets", resets)], &[]);
    let mut client = connect_slow(running.address);
    client.write_all(b"q").unwrap();
    until("it is given up", || running.edge.backends()[0].broken == 1);
    let (count, is_reset) = read_all(&client);
    assert!(count < BYTES && is_reset, "{count} of {BYTES}");
}
