//! One process in the place of another on shared ports, twenty times under load: no connection is refused or broken off.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use support::edge::{PATIENCE, answers, echo, free, metric, until};
use support::{Tidegate, binary, keep_asking};
use tidegate_testkit::Server;

const TAKEOVERS: usize = 20;

/// Listeners of an edge and of a gateway, both before a backend.
struct Site {
    edge: SocketAddr,
    gateway: SocketAddr,
    file: String,
}

impl Site {
    fn new(echo: SocketAddr, app: SocketAddr) -> Self {
        let (edge, gateway) = (free(), free());
        let file = format!(
            "edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\n\
             edge.backend = [{{ name = \"echo\", address = \"{echo}\", check = {{ kind = \"off\" }} }}]\n\
             gateway.listener = [{{ listen = \"{gateway}\" }}]\n\
             upstream = [{{ name = \"app\", servers = [\"http://{app}\"] }}]\n\
             route = [{{ name = \"app\", upstream = \"app\" }}]\n"
        );
        Self { edge, gateway, file }
    }

    fn start(&self) -> Tidegate {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("site.toml"), &self.file).unwrap();
        let environment = [
            ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
            ("TIDEGATE_EDGE_API_LISTEN", "off"),
            ("TIDEGATE_INTAKE_LISTEN", "off"),
            ("TIDEGATE_RUNTIME_SHARE_PORTS", "true"),
        ];
        Tidegate::start_in(data, &["--config", "site.toml"], &environment)
    }

    /// How many connections a process has taken.
    fn placed(&self, process: &Tidegate) -> u64 {
        metric(process, &format!("tidegate_edge_placed_total{{listener=\"{}\",by=\"score\"}}", self.edge))
    }
}

/// Ends the clients however the test ends.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn fault_23_twenty_processes_take_over_from_one_another_and_no_connection_fails() {
    let app = free();
    let _stub = Server::start(binary().args(["stub", &app.to_string()]), "listening on ");
    let site = Site::new(echo(), app);
    let (stop, visits, answered) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let before = std::thread::scope(|scope| {
        // However the test ends, it ends before the clients are waited for.
        let mut serving = site.start();
        let visit = || {
            while !stop.load(Relaxed) {
                let mut stream = TcpStream::connect(site.edge).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                assert!(answers(&mut stream), "a connection is not served");
                visits.fetch_add(1, Relaxed);
            }
        };
        let ask = || keep_asking(site.gateway, "GET / HTTP/1.1\r\nhost: t\r\n\r\n", &stop, &answered);
        let visitors = [(); 4].map(|()| scope.spawn(visit));
        let askers = [(); 4].map(|()| scope.spawn(ask));
        let _stop = StopAtTheEnd(&stop);
        let mut before = Vec::new();
        for _ in 0..TAKEOVERS {
            let next = site.start();
            until("the next one serves beside it", || site.placed(&next) > 0);
            serving.signal("TERM");
            before.push(std::mem::replace(&mut serving, next));
            let (visited, replies) = (visits.load(Relaxed), answered.load(Relaxed));
            until("the load goes on", || {
                visits.load(Relaxed) > visited + 50 && answered.load(Relaxed) > replies + 50
            });
        }
        // One whose connection is refused ends.
        assert!(visitors.iter().chain(&askers).all(|client| !client.is_finished()), "a connection failed");
        stop.store(true, Relaxed);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        // These leave when the server closes.
        serving.signal("TERM");
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        before.push(serving);
        before
    });
    for process in before {
        let ended = process.wait();
        assert!(ended.status.success(), "{}", ended.output);
    }
    // Without the setting nobody joins by mistake.
    let _serving = site.start();
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("site.toml"), &site.file).unwrap();
    let mut alone = binary();
    alone.args(["serve", "--config", "site.toml", "--intake-listen", "off"]).current_dir(data.path());
    for listener in ["HTTP", "GRPC", "RESP"] {
        alone.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
    }
    let refused = alone.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    let expected = format!("cannot listen on {}: the address is in use by another process", site.gateway);
    assert!(!refused.status.success() && said.contains(&expected), "{said}");
}
