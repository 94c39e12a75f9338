//! One thread of a stub: requests in, replies out.

use std::{cmp::Reverse, sync::atomic::Ordering, time::Duration};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send, sockopt::set_socket_linger},
};
use tidegate_wire::http1::scan_request;

use super::{
    connection::{ExchangeStage, StubAsk, render_json},
    options::FaultKind,
    server::StubServer,
};
use crate::epoch::nanos;

/// Longest request head, and most bytes held back while a reply is due.
const MAX_HEAD: usize = 64 << 10;
/// Full buffers read from one connection before the others get their turn.
const READS_PER_TURN: usize = 16;

impl StubServer {
    pub(super) fn read(&mut self, id: u32, now: u64, hung_up: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..READS_PER_TURN {
            let Some(connection) = &self.places[id as usize].connection else {
                break;
            };
            match recv(&connection.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => self.close(id),
                Ok((length, _)) => {
                    self.take(id, &buffer[..length], now);
                    if length < buffer.len() && !hung_up {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.close(id),
            }
        }
        self.buffer = buffer;
    }

    fn take(&mut self, id: u32, bytes: &[u8], now: u64) {
        if self.common.options.echo {
            return self.write(id, bytes, now);
        }
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        if connection.input.is_empty() && connection.stage == ExchangeStage::Reading {
            let used = self.parse(id, bytes, now);
            if let Some(connection) = &mut self.places[id as usize].connection {
                connection.input.extend_from_slice(&bytes[used..]);
            }
        } else if connection.input.len() + bytes.len() > 2 * MAX_HEAD {
            self.close(id);
        } else {
            connection.input.extend_from_slice(bytes);
            self.resume(id, now);
        }
    }

    /// Goes on with input that was held back.
    fn resume(&mut self, id: u32, now: u64) {
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        if connection.input.is_empty() || connection.stage != ExchangeStage::Reading {
            return;
        }
        let mut input = std::mem::take(&mut connection.input);
        let used = self.parse(id, &input, now);
        if let Some(connection) = &mut self.places[id as usize].connection {
            input.drain(..used);
            connection.input = input;
        }
    }

    /// Serves what requests there are at the front of `bytes`, until one has to wait.
    fn parse(&mut self, id: u32, bytes: &[u8], now: u64) -> usize {
        let mut at = 0;
        while let Some(connection) = &mut self.places[id as usize].connection {
            if connection.stage != ExchangeStage::Reading {
                break;
            }
            if !connection.in_body {
                match scan_request(&bytes[at..], MAX_HEAD) {
                    Ok(Some(head)) => {
                        at += head.length;
                        connection.ask = StubAsk::of(head.target);
                        connection.keep_alive = head.keep_alive;
                        connection.body_left = head.content_length;
                        connection.in_body = true;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.close(id);
                        return bytes.len();
                    }
                }
            }
            let part = connection.body_left.min((bytes.len() - at) as u64);
            at += part as usize;
            connection.body_left -= part;
            if connection.body_left > 0 {
                break;
            }
            connection.in_body = false;
            self.arrived(id, now);
        }
        at
    }

    /// A request was read to its end.
    fn arrived(&mut self, id: u32, now: u64) {
        let common = &self.common;
        let place = &mut self.places[id as usize];
        let Some(connection) = &mut place.connection else {
            return;
        };
        if connection.ask != StubAsk::Work {
            let json = match connection.ask {
                StubAsk::Reset => {
                    common.counters.reset();
                    "{}".to_owned()
                }
                _ => serde_json::to_string(&common.counters.stats()).unwrap_or_default(),
            };
            let mut out = Vec::new();
            render_json(&json, &mut out);
            return self.write(id, &out, now);
        }
        common.counters.arrived();
        let fate = common.behaviour.arrive(now);
        connection.fate = Some(fate);
        connection.arrived = now;
        connection.stage = ExchangeStage::Waiting;
        if fate.refused {
            common.counters.refused.fetch_add(1, Ordering::Relaxed);
            return self.reply(id, now);
        }
        if fate.fault == Some(FaultKind::Hang) {
            return;
        }
        if fate.at > now {
            self.timers.push(Reverse((fate.at, id, place.generation)));
        } else {
            self.work(id, now);
        }
    }

    /// A timer of a connection fired: its request's time has come, or the next piece of its reply's.
    pub(super) fn due(&mut self, id: u32, now: u64) {
        match self.places[id as usize].connection.as_ref().map(|connection| connection.stage) {
            Some(ExchangeStage::Waiting) => self.work(id, now),
            Some(ExchangeStage::Writing) => self.piece(id, now),
            _ => {}
        }
    }

    /// The request has had its delay: burn, ask upstream, or answer.
    fn work(&mut self, id: u32, now: u64) {
        let burn = nanos(self.common.options.burn);
        if burn > 0 {
            let until = self.now() + burn;
            while self.now() < until {
                std::hint::spin_loop();
            }
        }
        let generation = self.places[id as usize].generation;
        match &mut self.pool {
            Some(pool) => {
                if !pool.submit((id, generation), &self.poller) {
                    self.upstream_answered(id, generation, false);
                }
            }
            None => self.reply(id, now),
        }
    }

    pub(super) fn upstream_answered(&mut self, id: u32, generation: u32, served: bool) {
        let place = &mut self.places[id as usize];
        if place.generation != generation {
            return;
        }
        if let Some(fate) = place.connection.as_mut().and_then(|connection| connection.fate.as_mut())
            && !served
        {
            fate.status = 502;
        }
        let now = self.now();
        self.reply(id, now);
        self.resume(id, now);
    }

    fn reply(&mut self, id: u32, now: u64) {
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        let Some(fate) = connection.fate else {
            return;
        };
        let pieces = self.common.options.body_pieces.max(1);
        connection.keep_alive &= fate.fault.is_none_or(|fault| matches!(fault, FaultKind::Status(_)));
        connection.pieces_left = pieces - 1;
        connection.stage = ExchangeStage::Writing;
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        match fate.fault {
            Some(FaultKind::Reset) => {
                // A socket that is already gone needs no linger.
                let _gone = set_socket_linger(&connection.fd, Some(Duration::ZERO)).is_err();
                self.out = out;
                return self.close(id);
            }
            Some(FaultKind::Garbage) => out.extend_from_slice(b"\x16\x03\x01 this is not HTTP\r\n\r\n"),
            _ if fate.status == 200 && connection.keep_alive && pieces == 1 => {
                out.extend_from_slice(self.replies.plain());
            }
            _ => self.replies.first(fate.status, connection.keep_alive, &mut out),
        }
        if fate.fault == Some(FaultKind::Truncate) {
            out.truncate(out.len() / 2);
            connection.pieces_left = 0;
        }
        self.write(id, &out, now);
        self.out = out;
    }

    /// The next piece of a slow body.
    fn piece(&mut self, id: u32, now: u64) {
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        let index = self.common.options.body_pieces.saturating_sub(connection.pieces_left) as usize;
        connection.pieces_left = connection.pieces_left.saturating_sub(1);
        let bytes = vec![b'x'; self.replies.piece(index)];
        self.write(id, &bytes, now);
        self.resume(id, now);
    }

    /// Writes, and goes on to what comes after when everything was taken.
    fn write(&mut self, id: u32, bytes: &[u8], now: u64) {
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        if connection.output.is_empty() {
            match send(&connection.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(taken) if taken == bytes.len() => self.written(id, now),
                Ok(taken) => connection.output.extend_from_slice(&bytes[taken..]),
                Err(Errno::AGAIN | Errno::INTR) => connection.output.extend_from_slice(bytes),
                Err(_) => self.close(id),
            }
        } else {
            connection.output.extend_from_slice(bytes);
        }
    }

    pub(super) fn flush(&mut self, id: u32, now: u64) {
        let Some(connection) = &mut self.places[id as usize].connection else {
            return;
        };
        if connection.output.is_empty() {
            return;
        }
        match send(&connection.fd, &connection.output, SendFlags::NOSIGNAL) {
            Ok(taken) => {
                connection.output.drain(..taken);
                if connection.output.is_empty() {
                    self.written(id, now);
                    self.resume(id, now);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(id),
        }
    }

    /// The socket has taken all that there was to write.
    fn written(&mut self, id: u32, now: u64) {
        let ended = self.now();
        let place = &mut self.places[id as usize];
        let Some(connection) = &mut place.connection else {
            return;
        };
        if connection.pieces_left > 0 {
            let at = now + nanos(self.common.options.body_gap);
            return self.timers.push(Reverse((at, id, place.generation)));
        }
        connection.stage = ExchangeStage::Reading;
        if connection.fate.take().is_some() {
            self.common.counters.left(Some(ended.saturating_sub(connection.arrived)));
            self.common.behaviour.leave();
        }
        if !connection.keep_alive {
            self.close(id);
        }
    }
}
