//! The options of a URL that are about TLS, and what can be wrong with a URL.

use std::io;

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// Why a text is no way to PostgreSQL. The text itself is left out: it may hold a password.
#[derive(Debug, Error)]
pub enum UrlError {
    /// Not a URL, or an option that is none.
    #[error("the PostgreSQL URL cannot be read: {0}")]
    Syntax(String),
    /// `sslmode` is something else.
    #[error(
        "the PostgreSQL URL's sslmode is not one of disable, allow, prefer, require, verify-ca, verify-full"
    )]
    Mode,
    /// Only one of the two options is there.
    #[error("the PostgreSQL URL has only one of sslcert and sslkey")]
    Half,
    /// A file that cannot be read.
    #[error("the PostgreSQL URL's {option}: {problem}")]
    File {
        /// Which option names it.
        option: &'static str,
        /// Why not.
        problem: io::ErrorKind,
    },
    /// A file without a certificate or key that can be used.
    #[error("the PostgreSQL URL's {option}: {problem}")]
    Certificate {
        /// Which option names it.
        option: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// The options about TLS.
#[derive(Default)]
pub(crate) struct TlsOptions {
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) mode: Option<String>,
}

impl TlsOptions {
    /// The URL without the options about TLS, and these.
    pub(crate) fn split_from(url: &str) -> (String, Self) {
        let mut found = Self::default();
        let Some((place, query)) = url.rsplit_once('?').filter(|_| url.contains("://")) else {
            return (url.to_owned(), found);
        };
        let mut others = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "sslmode" => &mut found.mode,
                "sslrootcert" => &mut found.root,
                "sslcert" => &mut found.certificate,
                "sslkey" => &mut found.key,
                _ => {
                    others.push(pair);
                    continue;
                }
            };
            *slot = Some(percent_decode_str(value).decode_utf8_lossy().into_owned());
        }
        let mark = if others.is_empty() { "" } else { "?" };
        (format!("{place}{mark}{}", others.join("&")), found)
    }
}
