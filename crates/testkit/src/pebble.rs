//! Pebble, a small ACME authority, and the DNS that it asks: every name is 127.0.0.1.
//!
//! It keeps nothing: started again, it has another root, and knows no account.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::certificates::{Certificates, Pair};
use crate::process::wait_for;
use crate::{Server, free_port};

/// An authority and its DNS.
#[derive(Debug)]
pub struct Pebble {
    folder: TempDir,
    certificates: Certificates,
    pebble: Option<Server>,
    _dns: Server,
    port: u16,
    management_port: u16,
    dns_port: u16,
}

impl Pebble {
    /// Starts both. The authority asks for names by HTTP on `http_port` and by TLS on `tls_port`.
    ///
    /// # Panics
    /// If they are not installed; `make setup` builds them.
    #[must_use]
    pub fn start(http_port: u16, tls_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let certificates = Certificates::make();
        let Pair { certificate, key } = certificates.issue_for("directory", 365);
        let (port, management_port, dns_port) = (free_port(), free_port(), free_port());
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management_port}"),
            "certificate": certificate,
            "privateKey": key,
            "httpPort": http_port,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "domainBlocklist": ["blocked.example"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "90 days", "validityPeriod": 7_776_000 } },
        } });
        std::fs::write(folder.path().join("pebble.json"), config.to_string()).expect("a scratch file");
        let mut dns = Command::new(program("pebble-challtestsrv"));
        dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]);
        dns.args(["-dnsserver", &format!("127.0.0.1:{dns_port}")]);
        dns.args(["-management", &format!("127.0.0.1:{}", free_port())]);
        let dns = Server::spawn(&mut dns);
        wait_for(dns_port);
        let pebble = None;
        let mut made = Self { folder, certificates, pebble, _dns: dns, port, management_port, dns_port };
        made.start_again();
        made
    }

    /// The URL of its directory.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// The authority of the directory's own certificate, in PEM.
    #[must_use]
    pub fn directory_authority(&self) -> PathBuf {
        self.certificates.authority()
    }

    /// A file with its present root, in PEM.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn root(&self, name: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "60", "--cacert"])
            .arg(self.certificates.authority())
            .arg("--output")
            .arg(&file)
            .arg(format!("https://127.0.0.1:{}/roots/0", self.management_port))
            .output()
            .expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        file
    }

    /// Stops the authority without a trace; its DNS goes on.
    pub fn kill(&mut self) {
        if let Some(mut pebble) = self.pebble.take() {
            pebble.kill();
        }
    }

    /// Makes the authority silent: it accepts connections and answers nothing.
    ///
    /// # Panics
    /// If it was killed.
    pub fn freeze(&self) {
        self.pebble.as_ref().expect("it runs").freeze();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn thaw(&self) {
        self.pebble.as_ref().expect("it runs").thaw();
    }

    /// Starts the authority at the same address, with a new root and without accounts.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        let mut pebble = Command::new(program("pebble"));
        pebble.arg("-config").arg(self.folder.path().join("pebble.json"));
        pebble.args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_port)]);
        // Nobody waits for an authority that makes itself slow; a nonce is refused now and then, as it is by default.
        pebble.env("PEBBLE_VA_NOSLEEP", "1");
        self.pebble = Some(Server::start(&mut pebble, "ACME directory available at"));
        wait_for(self.port);
        wait_for(self.management_port);
    }
}

/// A program that `make setup` has built.
fn program(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin").join(name);
    assert!(built.exists(), "{} is not there: run `make setup`", built.display());
    built
}
