//! Bytes through an edge that ends TLS: in bulk, to a slow reader, half-closed. Here what was written may wait in the TLS session.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::support::{PATIENCE, Running, backend, connect, start_with, unchecked, until};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tidegate_net::tls::{MAX_HANDSHAKES, PairFiles, Tls, TlsConfig, TlsFiles};
use tidegate_testkit::certificates::Certificates;
use tidegate_wire::tls_version::TlsVersion;

const BYTES: usize = 32 << 20;

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 7) as u8
}

/// An edge that ends TLS before `backend`, and the authority of its certificate.
fn secured(backend: SocketAddr) -> (Running, Certificates) {
    let certificates = Certificates::make();
    let pair = PairFiles { certificate: certificates.certificate(), key: certificates.key() };
    let files =
        TlsFiles { pair: Some(pair), named: Vec::new(), client_ca: None, is_client_auth_optional: false };
    let tls = TlsConfig {
        files,
        named: None,
        protocols: &[],
        passed: Vec::new(),
        min_version: TlsVersion::default(),
        handshake_timeout: PATIENCE,
        max_handshakes: MAX_HANDSHAKES,
    };
    let running = start_with(Some(Tls::load(tls).unwrap()), json!({}), &[unchecked("only", backend)], &[]);
    (running, certificates)
}

fn client(running: &Running, certificates: &Certificates) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.authority()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, connect(running.address))
}

/// Reads to the end of the stream: how many bytes of the pattern there were.
fn heard(stream: &mut impl Read) -> usize {
    let (mut at, mut buffer) = (0, vec![0; 100_000]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            return at;
        }
        let is_right = buffer[..count].iter().zip(at..).all(|(byte, at)| *byte == pattern(at));
        assert!(is_right, "a byte after {at} is another");
        at += count;
    }
}

fn say(stream: &mut impl Write) -> std::io::Result<()> {
    (0..BYTES).step_by(1 << 16).try_for_each(|start| {
        let chunk: Vec<u8> = (start..start + (1 << 16)).map(pattern).collect();
        stream.write_all(&chunk)
    })
}

#[test]
fn bulk_is_heard_to_its_end_before_the_other_side_has_the_last_word() {
    let counting = backend(|mut stream| {
        let count = heard(&mut stream);
        stream.write_all(format!("{count} bytes").as_bytes()).unwrap();
    });
    let (running, certificates) = secured(counting);
    let mut client = client(&running, &certificates);
    say(&mut client).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{BYTES} bytes"));
    drop(client);
    let stats = running.listener.stats();
    until("the connection is over", || stats.open.load(Relaxed) == 0);
    assert_eq!(stats.traffic.read(), (BYTES as u64, said.len() as u64));
}

#[test]
fn a_slow_reader_slows_the_writer_down_and_misses_nothing() {
    let written = Arc::new(AtomicUsize::new(0));
    let fast = backend({
        let written = written.clone();
        move |mut stream| {
            for start in (0..BYTES).step_by(1 << 16) {
                let chunk: Vec<u8> = (start..start + (1 << 16)).map(pattern).collect();
                stream.write_all(&chunk).unwrap();
                written.fetch_add(chunk.len(), Relaxed);
            }
            stream.shutdown(Shutdown::Write).unwrap();
            // The client's end, so that nothing is reset.
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    let (running, certificates) = secured(fast);
    let mut client = client(&running, &certificates);
    // What the kernel keeps for a reader that does not read is less than what is to come.
    socket2::SockRef::from(&client.sock).set_recv_buffer_size(64 << 10).unwrap();
    client.conn.complete_io(&mut client.sock).unwrap();
    let still = || {
        let before = written.load(Relaxed);
        let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(1);
        assert!(receiver.recv_timeout(Duration::from_millis(1_000)).is_err());
        drop(sender);
        written.load(Relaxed) == before && before > 0
    };
    until("the backend stands still", still);
    assert!(written.load(Relaxed) < BYTES, "it waits for the client");
    assert_eq!(heard(&mut client), BYTES);
    client.conn.send_close_notify();
    client.flush().unwrap();
    drop(client);
    until("the connection is over", || running.listener.stats().open.load(Relaxed) == 0);
}
