//! What becomes of a connection whose server answers in an unusual way, or not at all.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use tidegate_net::clock::monotonic;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn fault_62_a_connection_with_half_a_request_on_it_gets_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, address) = listener.accept().unwrap();
    // It answers without reading all that comes, and its reply ends later than its head.
    let answering = std::thread::spawn(move || {
        peer.read_exact(&mut [0]).unwrap();
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no").unwrap();
        peer
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        server.set_nonblocking(true).unwrap();
        let mut direct = Direct::new(TcpStream::from_std(server).unwrap(), address.ip());
        let sent = direct.send(vec![b'x'; 64 << 20], false, monotonic() + PATIENCE).await;
        sent.expect("a reply in time").unwrap();
        let mut peer = answering.join().unwrap();
        peer.write_all(b"k").unwrap();
        while let Some(frame) = poll_fn(|cx| direct.poll_frame(cx)).await {
            frame.unwrap();
        }
        assert!(direct.is_at_end() && !direct.is_free());
    });
}

#[test]
fn a_wait_for_a_reply_ends_in_time_and_does_not_end_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, address) = listener.accept().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        server.set_nonblocking(true).unwrap();
        let mut direct = Direct::new(TcpStream::from_std(server).unwrap(), address.ip());
        let soon = monotonic() + Duration::from_millis(1);
        assert!(direct.send(b"x".to_vec(), false, soon).await.is_none());
        assert!(soon <= monotonic() && !direct.is_free());
        // Its timer has fired, and is moved.
        let answering = std::thread::spawn(move || {
            peer.read_exact(&mut [0; 2]).unwrap();
            peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            peer
        });
        let sent = direct.send(b"y".to_vec(), false, monotonic() + PATIENCE).await;
        assert_eq!(sent.expect("a reply in time").unwrap().status(), StatusCode::NO_CONTENT);
        drop(answering.join().unwrap());
    });
}
