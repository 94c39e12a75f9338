//! `tidegate health`: is the server of this machine or container ready? For health checks that can only start
//! a program.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::config::Sources;
use super::{EXIT_MISTAKES, EXIT_REFUSED, server};
use crate::config::{Config, Environment};

/// How long the server may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks the server of this machine or container whether it is ready.
///
/// That is the server that this configuration belongs to: it takes the same flags as `serve`, so that it finds where that
/// one listens. Exit code 0: it is ready, 1: it is not, or does not answer.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate health
  tidegate health --live --config /etc/tidegate/tidegate.toml
  tidegate health --server https://limits.example --ca ca.pem")]
pub struct Health {
    #[command(flatten)]
    sources: Sources,
    /// The server, if it is not where the configuration says: http:// or https://.
    #[arg(long = "server", value_name = "URL", value_parser = server::server_url)]
    url: Option<String>,
    /// Certificates (PEM) to trust for https://, in place of the system's authorities.
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// Ask only whether it is alive.
    #[arg(long)]
    live: bool,
}

/// Whom to ask.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// This URL has the operator's pages.
    Pages(String),
    /// The pages are behind TLS under a name that is not known here, so only this address is tried.
    Port(SocketAddr),
}

impl Health {
    /// Asks, and prints what was answered.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let target = match self.url {
            Some(url) => Target::Pages(url),
            None => match self.sources.with(environment).load() {
                Ok(loaded) => target(&loaded.config),
                Err(mistakes) => {
                    writeln!(out, "{mistakes}")?;
                    return Ok(ExitCode::from(EXIT_MISTAKES));
                }
            },
        };
        let (is_good, said) = match &target {
            Target::Pages(url) => {
                let path = if self.live { "livez" } else { "readyz" };
                page(&format!("{}/{path}", url.trim_end_matches('/')), self.ca.as_deref())
            }
            Target::Port(address) => port(*address),
        };
        writeln!(out, "{}", said.trim_end())?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_REFUSED) })
    }
}

/// The listener with the operator's pages, as this machine reaches it.
fn target(config: &Config) -> Target {
    let settings = &config.settings;
    let (address, tls) = match settings.admin.listen {
        Some(address) => (address, &settings.admin.tls),
        None => (settings.http.listen, &settings.http.tls),
    };
    let address = reachable(address);
    if tls.certificate.is_some() { Target::Port(address) } else { Target::Pages(format!("http://{address}")) }
}

/// An address that stands for all of a machine's is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn page(url: &str, ca: Option<&Path>) -> (bool, String) {
    let agent = match server::agent(url, ca, DEADLINE) {
        Ok(agent) => agent,
        Err(reason) => return (false, reason),
    };
    let asked = agent.get(url).call().and_then(|mut reply| {
        let is_good = reply.status().is_success();
        Ok((is_good, reply.body_mut().read_to_string()?))
    });
    asked.unwrap_or_else(|error| (false, format!("{url}: {error}")))
}

fn port(address: SocketAddr) -> (bool, String) {
    match TcpStream::connect_timeout(&address, DEADLINE) {
        Ok(_) => (true, format!("{address} accepts connections (by TLS; more is not asked)")),
        Err(error) => (false, format!("{address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load};

    #[test]
    fn the_listener_with_the_operators_pages_is_asked() {
        let of = |pairs: &[(&str, &str)]| {
            let environment: Environment = pairs.iter().copied().collect();
            target(&load(None, &environment, &Flags::default()).unwrap().config)
        };
        assert_eq!(of(&[]), Target::Pages("http://127.0.0.1:4000".into()));
        let token = ("TIDEGATE_ADMIN_TOKEN", "0123456789abcdef");
        assert_eq!(
            of(&[("TIDEGATE_HTTP_LISTEN", "0.0.0.0:80"), token]),
            Target::Pages("http://127.0.0.1:80".into())
        );
        assert_eq!(
            of(&[("TIDEGATE_ADMIN_LISTEN", "[::]:90"), token]),
            Target::Pages("http://[::1]:90".into())
        );
        let tls = [("TIDEGATE_HTTP_TLS_CERTIFICATE", "/c"), ("TIDEGATE_HTTP_TLS_KEY", "/k")];
        assert_eq!(of(&tls), Target::Port("127.0.0.1:4000".parse().unwrap()));
    }
}
