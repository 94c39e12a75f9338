//! Requests of HTTP/2 by the byte: what no client library would send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Sends a request whose lines are `name value`, with a body behind an empty line, and a second, good one;
/// what the first was answered (a status, or that it was reset), and whether the second one was answered.
pub fn exchange(address: SocketAddr, request: &[u8]) -> (String, bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (head, body) = match request.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&request[..at], Some(&request[at + 2..])),
        None => (request, None),
    };
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    let flags = if body.is_some() { END_HEADERS } else { END_HEADERS | END_STREAM };
    bytes.extend(frame(HEADERS, flags, 1, &block(head)));
    if let Some(body) = body {
        bytes.extend(frame(DATA, END_STREAM, 1, body));
    }
    let next = b":method GET\n:scheme http\n:path /next\n:authority a";
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(next)));
    stream.write_all(&bytes).unwrap();
    let (mut first, mut second) = (None, None);
    let mut ended = [false; 2];
    while ended != [true; 2] {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).is_err() {
            break;
        }
        let mut payload =
            vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        let (kind, flags, id) = (head[3], head[4], head[8]);
        let slot = if id == 1 { &mut first } else { &mut second };
        match kind {
            HEADERS => *slot = slot.take().or_else(|| Some(status(&payload))),
            RST_STREAM => *slot = slot.take().or_else(|| Some("reset".to_owned())),
            SETTINGS if flags & ACK == 0 => drop(stream.write_all(&frame(SETTINGS, ACK, 0, b""))),
            GOAWAY if payload[4..8] != [0; 4] => break,
            _ => {}
        }
        if (matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0) || kind == RST_STREAM {
            ended[usize::from(id == 3)] = true;
        }
    }
    (first.unwrap_or_else(|| "nothing".to_owned()), second.as_deref() == Some("200"))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A block of literal fields, none of them indexed or compressed (RFC 7541, 6.2.2).
fn block(lines: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (name, value) = (&line[..space], line.get(space + 1..).unwrap_or_default());
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a longer text has a longer length");
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text);
        }
    }
    block
}

/// The status that a block begins with, behind any change of the table's size.
fn status(block: &[u8]) -> String {
    let block = &block[block.iter().take_while(|byte| **byte & 0xe0 == 0x20).count()..];
    match block[0] {
        indexed @ 0x88..=0x8e => {
            ["200", "204", "206", "304", "400", "404", "500"][usize::from(indexed - 0x88)].to_owned()
        }
        0x48 | 0x08 | 0x18 => {
            let (is_huffman, length) = (block[1] & 0x80 != 0, usize::from(block[1] & 0x7f));
            let text = &block[2..2 + length];
            if is_huffman { digits(text) } else { String::from_utf8(text.to_vec()).unwrap() }
        }
        other => panic!("a status is written in a way that is not known here: {other:#x}"),
    }
}

/// Digits in Huffman's code (RFC 7541, appendix B).
fn digits(coded: &[u8]) -> String {
    let bits: Vec<u8> = coded.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let mut text = String::new();
    let mut at = 0;
    let take = |at: usize, count: usize| bits[at..at + count].iter().fold(0, |number, bit| number << 1 | bit);
    while text.len() < 3 {
        let short = take(at, 5);
        if short < 3 {
            text.push(char::from(b'0' + short));
            at += 5;
        } else {
            text.push(char::from(b'3' + take(at, 6) - 0x19));
            at += 6;
        }
    }
    text
}
