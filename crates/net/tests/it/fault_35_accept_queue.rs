//! Fault 35: a full server stops accepting, its accept queue overflows, and everybody who waited
//! is served as soon as there is room.

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Options, PATIENCE, TestServer, eventually, exchange, request};
use tidegate_net::http::HttpConfig;
use tidegate_net::listen::ListenConfig;
use tidegate_net::permits::Permits;

#[test]
fn fault_35_an_overflowing_accept_queue_recovers() {
    const CAP: usize = 4;
    const CLIENTS: usize = 40;
    let listen =
        ListenConfig { backlog: 4, ..ListenConfig::new(([127, 0, 0, 1], 0).into(), NonZeroUsize::MIN) };
    // Those inside are silent for as long as the test takes.
    let http = HttpConfig { head_timeout: PATIENCE, ..HttpConfig::default() };
    let permits = Permits::new(CAP);
    let server = TestServer::start(Options { permits, listen, http, ..Options::default() });
    let mut holders: Vec<_> = (0..CAP).map(|_| server.connect()).collect();
    eventually("all permits are taken", || server.drain.connections() == CAP);

    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let bytes = b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
                assert!(exchange(server.address, bytes).starts_with("HTTP/1.1 200"));
                served.fetch_add(1, Ordering::Relaxed);
            });
        }
        eventually("both loops pause", || server.stats.totals().accept_paused >= 2);
        for holder in &mut holders {
            assert!(request(holder, "/").unwrap().starts_with("HTTP/1.1 200"), "those inside are served");
        }
        assert_eq!(served.load(Ordering::Relaxed), 0, "nobody is served above the cap");
        holders.clear();
    });
    assert_eq!(served.load(Ordering::Relaxed), CLIENTS);
    eventually("all permits come back", || server.drain.connections() == 0);
}

#[test]
fn fault_44_a_client_that_leaves_gives_its_connection_back() {
    let http = HttpConfig { half_closed: Duration::from_millis(100), ..HttpConfig::default() };
    let server =
        TestServer::start(Options { permits: Permits::new(1), cores: 1, http, ..Options::default() });
    for _ in 0..20 {
        let mut gone = server.connect();
        write!(gone, "GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        let before = server.stats.totals().abandoned;
        eventually("the request has begun", || server.stats.totals().in_flight == 1);
        drop(gone);
        eventually("it was abandoned", || server.stats.totals().abandoned == before + 1);
    }
    assert!(request(&mut server.connect(), "/").unwrap().starts_with("HTTP/1.1 200"));
}
