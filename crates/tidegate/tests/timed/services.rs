//! Planted causes in services that others wrote.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_net::clock::monotonic;

use crate::planted::{Stub, attempts, ensure, saturate};

/// nginx before a stub; dropping it kills it.
struct LimitedNginx {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl LimitedNginx {
    /// At most `limit` requests at a time go on to `behind`; the others are answered 429.
    fn start(limit: u32, behind: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = tidegate_testkit::free_port();
        let config = format!(
            "daemon off; master_process off; error_log stderr; pid nginx.pid; events {{}}
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; keepalive_requests 1000000;
               limit_conn_zone $server_name zone=all:1m; limit_conn_status 429; limit_conn_log_level info;
               server {{
                 listen 127.0.0.1:{port};
                 location / {{ limit_conn all {limit}; proxy_pass http://{behind}; }}
               }} }}"
        );
        fs::write(folder.path().join("nginx.conf"), config).unwrap();
        let child = Command::new("nginx")
            .args(["-p", folder.path().to_str().unwrap(), "-c", "nginx.conf"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = monotonic();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "nginx does not listen");
        }
        Self { child, url: format!("http://127.0.0.1:{port}/"), _folder: folder }
    }
}

impl Drop for LimitedNginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `limit_conn 8` and replies of 20 ms: 400 a second, and the rest is turned away. `upstream` would be wrong, for what
/// stands behind is as fast as ever, and so would `hot-thread`: clients that pause leave nginx's one thread idle.
#[test]
fn a_limit_of_nginx_is_named() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let behind = Stub::start("--delay-ms 20");
        let nginx = LimitedNginx::start(8, behind.address());
        let flags = "--levels 4,8,32,64 --think-ms 20 --step-seconds 1.5 --warmup-seconds 0.3 --repeats 1";
        saturate(folder.path(), &nginx.url, flags).1
    };
    attempts("admission", run, |report| {
        ensure(report["cause"]["numbers"]["denied_share"].as_f64() > Some(0.1), "hardly anything is denied")
    });
}
