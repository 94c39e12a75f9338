//! A gigabyte passes in each direction in the memory of a few frames. Alone in its process, whose memory is measured.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "it/support/mod.rs"]
mod support;

use std::io::{BufReader, Read, Write};
use std::sync::mpsc;

use serde_json::json;
use support::{TestGateway, config, head, server};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

const GIGABYTE: u64 = 1 << 30;

/// Memory of this process, which has client, gateway and server in it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

fn send(stream: &mut impl Write, bytes: u64) {
    let piece = vec![b'x'; 256 << 10];
    for _ in 0..bytes / piece.len() as u64 {
        stream.write_all(&piece).unwrap();
    }
}

/// Reads so many bytes, and returns the most memory that was seen meanwhile.
fn receive(stream: &mut impl Read, bytes: u64) -> u64 {
    let mut piece = vec![0; 256 << 10];
    let (mut left, mut most) = (bytes, 0);
    while left > 0 {
        let size = stream.read(&mut piece).unwrap() as u64;
        assert!(size > 0, "{left} bytes are missing");
        // Now and then, for it costs a system call.
        if left / (16 << 20) != (left - size) / (16 << 20) {
            most = most.max(resident_bytes());
        }
        left -= size;
    }
    most
}

#[test]
fn a_gigabyte_passes_in_each_direction_in_constant_memory() {
    let (tell, told) = mpsc::sync_channel(1);
    let address = server(move |mut reader| {
        let request = head(&mut reader);
        let mut stream = reader.get_ref().try_clone().unwrap();
        if request.starts_with("PUT ") {
            tell.send(receive(&mut reader, GIGABYTE)).unwrap();
            stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").unwrap();
        } else {
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n").as_bytes())
                .unwrap();
            send(&mut stream, GIGABYTE);
        }
    });
    let config = config(
        json!([{"name": "app", "servers": [format!("http://{address}")]}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let before = resident_bytes();
    let mut client = gateway.connect();
    client
        .write_all(format!("PUT /up HTTP/1.1\r\nhost: a\r\ncontent-length: {GIGABYTE}\r\n\r\n").as_bytes())
        .unwrap();
    send(&mut client, GIGABYTE);
    let mut reader = BufReader::new(client.try_clone().unwrap());
    assert!(head(&mut reader).starts_with("HTTP/1.1 204 "));
    let up = told.recv().unwrap();
    client.write_all(b"GET /down HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let reply = head(&mut reader);
    assert!(reply.contains(&format!("content-length: {GIGABYTE}\r\n")), "{reply}");
    let down = receive(&mut reader, GIGABYTE);
    for (most, direction) in [(up, "up"), (down, "down")] {
        let grown = most.saturating_sub(before);
        assert!(grown < 64 << 20, "{direction}: {} MiB more than before", grown >> 20);
    }
}
