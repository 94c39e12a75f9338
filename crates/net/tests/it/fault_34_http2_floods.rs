//! FAULTS 34: rapid reset, MadeYouReset and CONTINUATION floods end in GOAWAY, and others are served on.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{Options, TestServer};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;
/// HPACK for `POST http /held`, which is answered when the server says so.
const REQUEST: &[u8] = b"\x83\x86\x04\x05/held";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn connect(server: &TestServer) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).unwrap();
    stream
}

/// Sends as much as the server takes and reads until GOAWAY; its error code.
fn goaway_after(server: &TestServer, flood: Vec<u8>) -> u32 {
    let mut reader = connect(server);
    let mut writer = reader.try_clone().unwrap();
    // The server closes in the middle of the flood; that is what the reader is to see.
    let sending = std::thread::spawn(move || drop(writer.write_all(&flood)));
    let code = loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).expect("GOAWAY before the end of the connection");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        reader.read_exact(&mut payload).unwrap();
        if head[3] == GOAWAY {
            break u32::from_be_bytes(payload[4..8].try_into().unwrap());
        }
    };
    drop(reader);
    sending.join().unwrap();
    code
}

fn requests(count: u32, and_then: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let streams = (0..count).map(|index| index * 2 + 1);
    streams
        .flat_map(|id| [frame(HEADERS, END_STREAM | END_HEADERS, id, REQUEST), and_then(id)].concat())
        .collect()
}

/// A listener for HTTP/2 only, and one that speaks HTTP/1.1 too.
fn servers() -> [TestServer; 2] {
    let options = || Options { cores: 1, ..Options::default() };
    [TestServer::start_http2(options()), TestServer::start(options())]
}

#[test]
fn fault_34_rapid_reset_ends_in_goaway() {
    let flood = requests(10_000, |id| frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
    assert_calmed(&flood);
}

#[test]
fn fault_34_made_you_reset_ends_in_goaway() {
    // A window that overflows is the stream's error, which the server answers with a reset of its own.
    let flood = requests(10_000, |id| frame(WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes()));
    assert_calmed(&flood);
}

#[test]
fn fault_34_a_flood_of_continuation_ends_in_goaway() {
    let filler = b"\x40\x01a\x7f\x81\x02".iter().copied().chain([b'b'; 384]).collect::<Vec<u8>>();
    let mut flood = frame(HEADERS, END_STREAM, 1, REQUEST);
    for _ in 0..10_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &filler));
    }
    assert_calmed(&flood);
}

fn assert_calmed(flood: &[u8]) {
    for server in servers() {
        assert_eq!(goaway_after(&server, flood.to_vec()), ENHANCE_YOUR_CALM);
        assert_served(&server);
    }
}

/// Another client is served: its request is answered with HEADERS.
fn assert_served(server: &TestServer) {
    let mut stream = connect(server);
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82\x86\x84")).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        std::io::copy(&mut (&stream).take(length.into()), &mut std::io::sink()).unwrap();
        if head[3] == HEADERS {
            return;
        }
    }
}
