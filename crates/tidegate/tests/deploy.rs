//! The examples of `deploy/` do what they say: a real nginx asks the built binary.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Tidegate, agent};

/// A running nginx, stopped when dropped.
struct Nginx {
    config: PathBuf,
    front: String,
}

impl Nginx {
    /// `deploy/nginx.conf` with our addresses in place of its own, and an application behind it.
    fn start(folder: &Path, tidegate: &str) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (front, application) = (free(), free());
        let example = include_str!("../../../deploy/nginx.conf")
            .replace("127.0.0.1:4000", tidegate)
            .replace("127.0.0.1:8080", &front)
            .replace("127.0.0.1:3000", &application);
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = kinds.map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display())).concat();
        let text = format!(
            "pid {0}/pid;\nerror_log {0}/error.log;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{example}\n\
             server {{ listen {application}; return 200 application; }}\n}}\n",
            folder.display()
        );
        let config = folder.join("nginx.conf");
        std::fs::write(&config, text).unwrap();
        let nginx = Self { config, front };
        // nginx goes to the background once its sockets listen, so nobody has to wait for them.
        let started = nginx.command().output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        nginx
    }

    fn command(&self) -> Command {
        let program = ["/usr/sbin/nginx", "nginx"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("nginx"));
        command.arg("-c").arg(&self.config);
        command
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It fails only if nginx has ended already.
        drop(self.command().args(["-s", "stop"]).output());
    }
}

#[test]
fn nginx_lets_through_what_tidegate_lets_through() {
    let tidegate = Tidegate::start(&[], &[("TIDEGATE_HTTP_TRUSTED_PROXY_HOPS", "1")]);
    let folder = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(folder.path(), &tidegate.http.to_string());
    let ask = || agent().get(format!("http://{}/page", nginx.front)).call().unwrap();

    for number in 1..=100 {
        let mut reply = ask();
        assert_eq!(reply.status(), 200, "request {number}");
        assert_eq!(reply.body_mut().read_to_string().unwrap(), "application");
        let state = reply.headers()["ratelimit"].to_str().unwrap();
        assert!(state.starts_with(&format!("\"default\";r={};", 100 - number)), "{state}");
    }
    let denied = ask();
    assert_eq!(denied.status(), 429);
    let wait: u64 = denied.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(denied.headers()["ratelimit"].to_str().unwrap().starts_with("\"default\";r=0;"));

    drop(tidegate);
    assert_eq!(ask().status(), 503, "nobody gets through when nobody decides");
}
