//! Certificates made by the `openssl` program, good for a day.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority, and certificates that it signed for 127.0.0.1 and `localhost`. Any of them serves as
/// a client's too.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

impl Pair {
    /// Puts copies of both files in the place of `other`'s, each at once: the key first.
    ///
    /// # Panics
    /// If the folder cannot be written to.
    pub fn replace(&self, other: &Self) {
        for (from, to) in [(&self.key, &other.key), (&self.certificate, &other.certificate)] {
            let beside = to.with_extension("new");
            std::fs::copy(from, &beside).expect("a scratch file can be copied");
            std::fs::rename(&beside, to).expect("a scratch file can be renamed");
        }
    }
}

/// Arguments that make a new key and a request or a certificate for it.
const NEW: [&str; 6] = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Certificates {
    /// Makes the authority, and a first pair.
    ///
    /// # Panics
    /// If openssl is not installed.
    #[must_use]
    pub fn make() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let made = Self { folder };
        std::fs::write(made.path("extensions"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")
            .expect("a scratch file");
        let (authority, key) = (made.text("authority.pem"), made.text("authority.key"));
        let to = ["-subj", "/CN=test authority", "-x509", "-days", "1", "-keyout", &key, "-out", &authority];
        openssl(&[&NEW[..], &to].concat());
        made.sign("certificate.pem", "key.pem", 1);
        made
    }

    /// A new pair, good for a day.
    #[must_use]
    pub fn issue(&self, name: &str) -> Pair {
        self.issue_for(name, 1)
    }

    /// A new pair, good for `days` from now.
    #[must_use]
    pub fn issue_for(&self, name: &str, days: u32) -> Pair {
        self.sign(&format!("{name}.pem"), &format!("{name}.key"), i64::from(days))
    }

    /// A new pair with these names, as openssl writes them: `DNS:client.example`, `URI:spiffe://a/b`.
    ///
    /// # Panics
    /// If openssl refuses them.
    #[must_use]
    pub fn issue_named(&self, name: &str, names: &str) -> Pair {
        let extensions = format!("{name}.extensions");
        std::fs::write(self.path(&extensions), format!("subjectAltName={names}\n")).expect("a scratch file");
        self.sign_with(&extensions, &format!("{name}.pem"), &format!("{name}.key"), 1)
    }

    /// A new pair that expired a day ago.
    #[must_use]
    pub fn expired(&self, name: &str) -> Pair {
        self.sign(&format!("{name}.pem"), &format!("{name}.key"), -1)
    }

    /// The certificate of another authority with this subject, as openssl writes it: `/CN=other`. In PEM.
    ///
    /// # Panics
    /// If openssl refuses it.
    #[must_use]
    pub fn other_authority(&self, subject: &str) -> PathBuf {
        let made = self.path("other-authority.pem");
        let (file, key) = (self.text("other-authority.pem"), self.text("other-authority.key"));
        openssl(
            &[&NEW[..], &["-subj", subject, "-x509", "-days", "1", "-keyout", &key, "-out", &file]].concat(),
        );
        made
    }

    /// What `openssl req -x509` makes for a server: signed by itself, and an authority's (CA:TRUE). For 127.0.0.1 and `localhost`.
    ///
    /// # Panics
    /// If openssl refuses it.
    #[must_use]
    pub fn self_signed(&self, name: &str) -> Pair {
        let (file, key) = (format!("{name}.pem"), format!("{name}.key"));
        let pair = Pair { certificate: self.path(&file), key: self.path(&key) };
        let (file, key) = (self.text(&file), self.text(&key));
        let names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"];
        let to = ["-subj", "/CN=localhost", "-x509", "-days", "1", "-keyout", &key, "-out", &file];
        openssl(&[&NEW[..], &to, &names].concat());
        pair
    }

    /// The authority's certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// The first pair's certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    /// The first pair's key, in PEM.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.path("key.pem")
    }

    fn sign(&self, certificate: &str, key: &str, days: i64) -> Pair {
        self.sign_with("extensions", certificate, key, days)
    }

    fn sign_with(&self, extensions: &str, certificate: &str, key: &str, days: i64) -> Pair {
        let pair = Pair { certificate: self.path(certificate), key: self.path(key) };
        let (request, key_path) = (self.text("request.pem"), self.text(key));
        openssl(&[&NEW[..], &["-subj", "/CN=test", "-keyout", &key_path, "-out", &request]].concat());
        let (authority, authority_key) = (self.text("authority.pem"), self.text("authority.key"));
        let (extensions, out, days) = (self.text(extensions), self.text(certificate), days.to_string());
        openssl(&[
            "x509",
            "-req",
            "-days",
            &days,
            "-in",
            &request,
            "-CA",
            &authority,
            "-CAkey",
            &authority_key,
            "-CAcreateserial",
            "-extfile",
            &extensions,
            "-out",
            &out,
        ]);
        pair
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().expect("openssl runs");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
