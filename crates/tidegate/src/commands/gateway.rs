//! `tidegate gateway`: a reverse proxy in front of the servers that are named, without a file.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use tidegate_gateway::config::GatewayConfig;

use super::EXIT_MISTAKES;
use super::signals::Stops;
use crate::config::{Log, LogFormat, LogLevel};
use crate::serve::GatewayApp;

/// Exit code of a process that could not start.
const EXIT_CANNOT_START: u8 = 1;

/// Passes HTTP requests on to the servers that are named.
///
/// They are balanced, tried again where that is safe, and behind a circuit breaker. A gateway with routes, limits and TLS
/// is `tidegate serve` with a file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate gateway http://127.0.0.1:3000
  tidegate gateway http://10.0.0.5:3000 http://10.0.0.6:3000 --listen 0.0.0.0:8080")]
pub struct GatewayCommand {
    /// The servers: http://host:port, one or several that do the same work.
    #[arg(required = true, value_name = "URL")]
    servers: Vec<String>,
    /// Where to listen for clients.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where the operator's pages are: /livez, /readyz, /metrics.
    #[arg(long, default_value = "127.0.0.1:4000")]
    http_listen: SocketAddr,
}

impl GatewayCommand {
    /// Runs until SIGTERM or Ctrl-C.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let config = match GatewayConfig::reverse_proxy(&self.servers) {
            Ok(config) => config,
            Err(mistakes) => {
                for mistake in mistakes {
                    writeln!(out, "a server {} (accepted: http://host:port)", mistake.problem)?;
                }
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
        };
        crate::logging::start(&Log { level: LogLevel::Info, format: LogFormat::Text });
        let app = match GatewayApp::build(&config, self.listen, self.http_listen) {
            Ok(app) => app,
            Err(error) => {
                writeln!(out, "cannot start: {error}")?;
                return Ok(ExitCode::from(EXIT_CANNOT_START));
            }
        };
        let (proxy, pages) = app.addresses();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut stops = Stops::listen()?;
            writeln!(out, "tidegate {}", env!("CARGO_PKG_VERSION"))?;
            writeln!(out, "  gateway   http://{proxy}   -> {}", self.servers.join(", "))?;
            writeln!(out, "  operator  http://{pages}   (/livez, /readyz, /metrics)")?;
            out.flush()?;
            let drained = app.run(async { stops.next().await }).await;
            if drained.aborted > 0 {
                tracing::warn!(connections = drained.aborted, "stopped with connections still open");
                return Ok(ExitCode::FAILURE);
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
