//! A TCP proxy on the loopback address that makes a real server slow: latency, bandwidth.
//!
//! Latency delays what passes and reorders nothing: bytes wait in a queue, each until its own time.
//! Both can change while connections are open, and hold for what is read from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Reads that wait in each direction of a connection.
const QUEUE: usize = 1_024;
/// Bytes written at once while the bandwidth is limited.
const PIECE: usize = 64;

/// A proxy before one server; dropping it cuts every connection.
#[derive(Debug)]
pub struct SlowProxy {
    /// Its port on 127.0.0.1.
    pub port: u16,
    pace: Arc<ProxyPace>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct ProxyPace {
    delay_ms: AtomicU64,
    /// 0: unlimited.
    bytes_per_second: AtomicU64,
}

impl SlowProxy {
    /// A proxy before the server on this port of 127.0.0.1, not slow yet.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(server: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread can be started");
        let pace = Arc::new(ProxyPace::default());
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let port = listener.local_addr().expect("it is bound").port();
        runtime.spawn(accept(listener, server, Arc::clone(&pace)));
        Self { port, pace, runtime: Some(runtime) }
    }

    /// Adds this much to each direction; at most milliseconds count.
    pub fn delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.pace.delay_ms.store(millis, Ordering::Relaxed);
    }

    /// Lets this many bytes a second through in each direction of a connection; 0: all.
    pub fn bandwidth(&self, bytes_per_second: u64) {
        self.pace.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }
}

impl Drop for SlowProxy {
    fn drop(&mut self) {
        // Without waiting, since a test may drop it on an asynchronous thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: std::net::TcpListener, server: u16, pace: Arc<ProxyPace>) {
    let listener = TcpListener::from_std(listener).expect("it is non-blocking");
    while let Ok((client, _)) = listener.accept().await {
        let pace = Arc::clone(&pace);
        tokio::spawn(async move {
            // A server that is down is what the client finds: no connection.
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
            // As the ends themselves do it; else small messages wait for one another.
            if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
                return;
            }
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(carry(from_client, to_server, &pace), carry(from_server, to_client, &pace));
        });
    }
}

/// Carries bytes until either end is closed.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, pace: &ProxyPace) {
    let (sender, mut queue) = mpsc::channel::<(Instant, Vec<u8>)>(QUEUE);
    let reading = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + Duration::from_millis(pace.delay_ms.load(Ordering::Relaxed));
            if sender.send((due, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due).await;
            let limited = pace.bytes_per_second.load(Ordering::Relaxed) > 0;
            for piece in bytes.chunks(if limited { PIECE } else { usize::MAX }) {
                let rate = pace.bytes_per_second.load(Ordering::Relaxed);
                if rate > 0 {
                    sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64)).await;
                }
                if to.write_all(piece).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_passes_is_late_and_whole() {
        let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = echo.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut peer, _) = echo.accept().unwrap();
            let mut bytes = [0; 1_000];
            peer.read_exact(&mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
        });
        let proxy = SlowProxy::start(port);
        proxy.delay(Duration::from_millis(100));
        proxy.bandwidth(5_000);
        let start = Instant::now();
        let mut client = std::net::TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        client.write_all(&[7; 1_000]).unwrap();
        let mut back = [0; 1_000];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [7; 1_000]);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(200 + 400), "{took:?}");
        server.join().unwrap();
    }
}
