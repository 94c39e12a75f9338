//! A server and clients in the plainest form - a thread for each connection, blocking calls - by which the
//! engine's claims on time are judged. Whatever pace a machine has, both sides have it.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_net::clock::monotonic;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: reference\r\n\r\n";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx";

/// When a request had been read, and when its reply had been written.
type Moments = (Instant, Instant);

/// Answers each request after a pause, and stands still once; keeps what it did.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    done: Arc<Mutex<Vec<Moments>>>,
}

impl Server {
    /// Stands still for `freeze` from `after` on, counted from its first request.
    pub(crate) fn start(pause: Duration, after: Duration, freeze: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let done = Arc::<Mutex<Vec<Moments>>>::default();
        let first = Arc::<OnceLock<Instant>>::default();
        let kept = Arc::clone(&done);
        // Ends with the process: it has nothing to give back.
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (done, first) = (Arc::clone(&done), Arc::clone(&first));
                thread::spawn(move || {
                    while read_to(&mut stream, b"\r\n\r\n") {
                        let read = monotonic();
                        let thaws = *first.get_or_init(|| read) + after + freeze;
                        stand_still(thaws, freeze);
                        linger(pause);
                        stand_still(thaws, freeze);
                        if stream.write_all(REPLY).is_err() {
                            return;
                        }
                        done.lock().push((read, monotonic()));
                    }
                });
            }
        });
        Self { address, done: kept }
    }

    /// Response times in milliseconds, ascending, of requests that were due at this rate: the n-th reply is
    /// the n-th request's, which was due n gaps after the first. None is read before it is due, so the
    /// earliest of all says when the first was.
    pub(crate) fn responses(&self, rate: f64) -> Vec<f64> {
        let done = self.done.lock();
        let origin = done.iter().map(|(read, _)| *read).min().expect("a request");
        let ascending = |pick: fn(&Moments) -> Instant| {
            let since = |moments| pick(moments).duration_since(origin).as_secs_f64() * 1e3;
            let mut times: Vec<f64> = done.iter().map(since).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let due = |n: usize| n as f64 * 1e3 / rate;
        let (read, replied) = (ascending(|moments| moments.0), ascending(|moments| moments.1));
        let first = read.iter().enumerate().map(|(n, at)| at - due(n)).fold(0.0, f64::min);
        let mut responses: Vec<f64> = replied.iter().enumerate().map(|(n, at)| at - due(n) - first).collect();
        responses.sort_by(f64::total_cmp);
        responses
    }
}

/// What so many clients wait for their replies, each sending again at once: milliseconds, ascending.
pub(crate) fn clients(address: SocketAddr, count: usize, length: Duration) -> Vec<f64> {
    let client = move || {
        let mut stream = TcpStream::connect(address).expect("a server");
        let (began, mut waits) = (monotonic(), Vec::new());
        while began.elapsed() < length {
            let sent = monotonic();
            stream.write_all(REQUEST).expect("the server reads");
            assert!(read_to(&mut stream, b"\r\n\r\nxx"), "a reply");
            waits.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        waits
    };
    let clients: Vec<_> = (0..count).map(|_| thread::spawn(client)).collect();
    let mut waits: Vec<f64> =
        clients.into_iter().flat_map(|client| client.join().expect("a client that is answered")).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

/// The value below which this share of ascending values lies.
pub(crate) fn quantile(ascending: &[f64], share: f64) -> f64 {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending[rank.clamp(1, ascending.len()) - 1]
}

/// A request that comes while the server stands still waits, and so does one that it was at work on.
fn stand_still(thaws: Instant, freeze: Duration) {
    let left = thaws.saturating_duration_since(monotonic());
    if left <= freeze {
        linger(left);
    }
}

/// Reads one message, up to these last bytes; false at the end of the stream.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> bool {
    let (mut text, mut buffer) = (Vec::new(), [0; 4_096]);
    while !text.ends_with(end) {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(length) => text.extend_from_slice(&buffer[..length]),
        }
    }
    true
}

#[expect(clippy::disallowed_methods, reason = "a server that is slow or stands still does so in time")]
fn linger(time: Duration) {
    // Sleeps because the time that a reply takes is what is planted.
    thread::sleep(time);
}
