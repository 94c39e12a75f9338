//! nginx, for tests that need a real server or proxy of HTTP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Server;
use crate::process::wait_for;

/// A running nginx; dropping it kills it.
#[derive(Debug)]
pub struct Nginx {
    /// The process: freeze, thaw, kill.
    pub server: Server,
    folder: TempDir,
}

impl Nginx {
    /// Starts one that has `http` in its block `http`, given its scratch folder, and waits until it listens on all of `ports` of
    /// 127.0.0.1.
    ///
    /// # Panics
    /// If nginx is not installed or does not start.
    #[must_use]
    pub fn start(ports: &[u16], http: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let at = folder.path().display();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = kinds.map(|kind| format!("{kind}_temp_path {at}/{kind};\n")).concat();
        let text = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\nevents {{}}\n\
             http {{\n{temporary}{}\n}}\n",
            http(folder.path())
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).expect("a scratch file can be written");
        let mut command = Command::new(program());
        command.arg("-c").arg(&file).arg("-e").arg(folder.path().join("error.log"));
        let server = Server::spawn(&mut command);
        ports.iter().for_each(|port| wait_for(*port));
        Self { server, folder }
    }

    /// Its scratch folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The version that is installed, as in `1.22.1`.
    ///
    /// # Panics
    /// If nginx is not installed.
    #[must_use]
    pub fn version() -> String {
        let output = Command::new(program()).arg("-v").output().expect("nginx runs");
        String::from_utf8_lossy(&output.stderr).trim().replace("nginx version: nginx/", "")
    }
}

/// It is not in the path of every user.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut files = folders.map(|folder| folder.join("nginx"));
    files.find(|file| file.is_file()).expect("nginx is installed: `make setup`")
}
