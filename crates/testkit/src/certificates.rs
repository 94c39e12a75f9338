//! Certificates made by the `openssl` program, good for a day.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority, and a certificate that it signed for 127.0.0.1, `localhost` and a client.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them.
    ///
    /// # Panics
    /// If openssl is not installed.
    #[must_use]
    pub fn make() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let made = Self { folder };
        let extensions = made.path("extensions");
        std::fs::write(&extensions, "subjectAltName=IP:127.0.0.1,DNS:localhost\n").expect("a scratch file");
        let path = |name: &str| made.path(name).display().to_string();
        let (authority, authority_key) = (path("authority.pem"), path("authority.key"));
        let (request, key, certificate) = (path("request.pem"), path("key.pem"), path("certificate.pem"));
        let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"];
        let authority_of = ["/CN=test authority", "-x509", "-days", "1"];
        openssl(&[&new[..], &authority_of, &["-keyout", &authority_key, "-out", &authority]].concat());
        openssl(&[&new[..], &["/CN=test", "-keyout", &key, "-out", &request]].concat());
        let signing =
            ["x509", "-req", "-days", "1", "-in", &request, "-CA", &authority, "-CAkey", &authority_key];
        let extfile = extensions.display().to_string();
        openssl(&[&signing[..], &["-CAcreateserial", "-extfile", &extfile, "-out", &certificate]].concat());
        made
    }

    /// The authority's certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// The signed certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    /// Its key, in PEM.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.path("key.pem")
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().expect("openssl runs");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
