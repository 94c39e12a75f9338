//! Why a backend is not as it should be, in an operator's words: for the log and for explanations.
//!
//! Causes come as errors of the system and of libraries; their texts are for programmers (`Connection refused (os error 111)`,
//! `UnknownIssuer`). Here is the one place where they become sentences.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

/// Why a health check failed.
#[derive(Debug, Error)]
pub enum CheckFailure {
    /// No connection, or one that broke.
    #[error("{}", in_words(.0))]
    Connection(#[from] io::Error),
    /// A status that is not the expected one.
    #[error("answered {0}")]
    Answered(u16),
    /// No answer in this time.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// An answer that says that it is not well, or none of the protocol; the words say which.
    #[error("{0}")]
    Unwell(&'static str),
}

/// What an error of a connection says to an operator: "connection refused", "certificate: expired".
#[must_use]
pub fn in_words(error: &io::Error) -> String {
    if let Some(refused) = refused_certificate(error) {
        return format!("certificate: {refused}");
    }
    let text = match error.kind() {
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        io::ErrorKind::UnexpectedEof => "connection closed".to_owned(),
        _ => error.to_string(),
    };
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// What is wrong with the certificate that a server showed, if that is what broke the connection.
#[must_use]
pub fn refused_certificate(error: &io::Error) -> Option<Cow<'static, str>> {
    let library = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(wrong) = library else { return None };
    Some(match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "not valid yet".into(),
        CertificateError::UnknownIssuer => "not signed by a trusted authority".into(),
        CertificateError::BadSignature => "its signature is wrong".into(),
        // webpki's error, which is no part of rustls's interface, by its name.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "an authority's own (CA:TRUE), which is trusted only where ca_file holds it".into()
        }
        other => {
            let text = other.to_string();
            text.strip_prefix("certificate ").map_or(text.clone(), str::to_owned).into()
        }
    })
}

/// Whether a handshake failed because the other side speaks no protocol that it was offered by ALPN (RFC 7301, 3.2).
#[must_use]
pub fn shares_no_protocol(error: &io::Error) -> bool {
    let library = error.get_ref().and_then(|library| library.downcast_ref::<rustls::Error>());
    matches!(library, Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_and_libraries_say_is_put_in_an_operators_words() {
        let system = |code| in_words(&io::Error::from_raw_os_error(code));
        assert_eq!(system(111), "connection refused");
        assert_eq!(system(113), "no route to host");
        assert_eq!(in_words(&io::ErrorKind::TimedOut.into()), "timed out");
        let certificate = |wrong| {
            let error = rustls::Error::InvalidCertificate(wrong);
            CheckFailure::from(io::Error::new(io::ErrorKind::InvalidData, error)).to_string()
        };
        assert_eq!(certificate(CertificateError::Expired), "certificate: expired");
        assert_eq!(
            certificate(CertificateError::UnknownIssuer),
            "certificate: not signed by a trusted authority"
        );
        assert_eq!(CheckFailure::TimedOut(Duration::from_secs(2)).to_string(), "timed out after 2s");
        assert_eq!(CheckFailure::Answered(500).to_string(), "answered 500");
    }
}
