//! One connection before a run, so that a target that is not there is said in a sentence and not
//! measured as errors.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use thiserror::Error;

use crate::load::Options;

/// Longest wait for the connection, and for each side's word in its handshake.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a target cannot be put under load, in a sentence for its owner.
#[derive(Debug, Error)]
pub enum Unreachable {
    /// ECONNREFUSED.
    #[error("nothing listens at {0}: start the server, or correct the address")]
    NobodyListens(SocketAddr),
    /// No answer to a connection within 3 s, or within the shorter timeout of the run.
    #[error("{0} does not answer: no connection within {seconds:.1} s", seconds = .1.as_secs_f64())]
    Silent(SocketAddr, Duration),
    /// Another error of the operating system.
    #[error("{0} cannot be reached: {1}")]
    Connect(SocketAddr, io::Error),
    /// The TLS handshake failed.
    #[error(
        "{0} listens, and TLS with it fails: {1} (--ca FILE trusts further authorities, --insecure any certificate)"
    )]
    Tls(SocketAddr, io::Error),
}

/// Connects once, and does one TLS handshake where the run will.
///
/// # Errors
/// When that cannot be done. A client without a free descriptor or port is told by the run itself.
pub fn contact(options: &Options) -> Result<(), Unreachable> {
    let target = options.target;
    let patience = options.connect_timeout.clamp(Duration::from_millis(1), PATIENCE);
    let mut socket = match TcpStream::connect_timeout(&target, patience) {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Err(Unreachable::NobodyListens(target)),
                io::ErrorKind::TimedOut => Err(Unreachable::Silent(target, patience)),
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    Err(Unreachable::Connect(target, error))
                }
                _ => Ok(()),
            };
        }
    };
    let Some(tls) = &options.tls else { return Ok(()) };
    socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| socket.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| tls.try_handshake(&mut socket))
        .map_err(|error| Unreachable::Tls(target, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Exchange;
    use std::net::TcpListener;

    #[test]
    fn a_target_that_is_not_there_is_named_in_a_sentence() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = Options::new(listener.local_addr().unwrap(), Exchange::TcpConnect);
        assert!(contact(&options).is_ok());
        drop(listener);
        let said = contact(&options).unwrap_err().to_string();
        assert_eq!(
            said,
            format!("nothing listens at {}: start the server, or correct the address", options.target)
        );
    }
}
