//! `tidegate edge`: one listener of the TCP edge, whose backends register themselves, without a file.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use tidegate_access::tokens::{Credential, Scope, Tokens, TokensInForce};
use tidegate_algorithms::document::is_name;
use tidegate_edge::config::DEFAULT_APP;

use super::EXIT_MISTAKES;
use super::signals::Stops;
use crate::config::{Environment, Log, LogFormat, LogLevel, Value};
use crate::serve::{EdgeApp, EdgeOptions};

/// Exit code of a process that could not start.
const EXIT_CANNOT_START: u8 = 1;

/// The environment variable with the token of backends that register.
const TOKEN: &str = "TIDEGATE_EDGE_API_TOKEN";

/// Shortest token.
const MIN_TOKEN_BYTES: usize = 16;

/// Passes TCP connections on to the nearest of the backends that register.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate edge
  tidegate edge --listen 0.0.0.0:443 --app shop --region eu-central")]
pub struct EdgeCommand {
    /// Where to listen for clients.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The app whose backends clients get: those that register with this `app`.
    #[arg(long, value_parser = name, default_value = DEFAULT_APP)]
    app: String,
    /// The region of this node.
    #[arg(long, value_parser = name)]
    region: Option<String>,
    /// Where backends register. Others than loopback need a token in TIDEGATE_EDGE_API_TOKEN.
    #[arg(long, default_value = "127.0.0.1:8081")]
    api: SocketAddr,
    /// Where the operator's pages are: /livez, /readyz, /metrics.
    #[arg(long, default_value = "127.0.0.1:4000")]
    http_listen: SocketAddr,
    /// The least severe line that is logged: off, error, warn, info, debug, trace. With debug every connection has a line.
    #[arg(long, default_value = "info", value_parser = word::<LogLevel>)]
    log_level: LogLevel,
    /// How log lines look: text, json.
    #[arg(long, default_value = "text", value_parser = word::<LogFormat>)]
    log_format: LogFormat,
}

fn word<T: Value<Range = ()>>(text: &str) -> Result<T, String> {
    T::parse(text, &()).ok_or_else(|| T::accepted(&()))
}

fn name(text: &str) -> Result<String, String> {
    let accepted = "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter";
    if is_name(text) { Ok(text.to_owned()) } else { Err(accepted.to_owned()) }
}

impl EdgeCommand {
    /// Runs until SIGTERM or Ctrl-C.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let Self { listen, app, region, api, http_listen, log_level, log_format } = self;
        let secret = environment.get(TOKEN);
        match secret {
            Some(secret) if secret.len() < MIN_TOKEN_BYTES => {
                writeln!(out, "{TOKEN} is not acceptable (accepted: {MIN_TOKEN_BYTES} characters or more)")?;
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
            None if !api.ip().to_canonical().is_loopback() => {
                writeln!(
                    out,
                    "--api is {api}, which others can reach, and there is no {TOKEN} (accepted: a loopback address; or \
                     the token beside it)"
                )?;
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
            _ => {}
        }
        let credential =
            secret.map(|secret| Credential::new("edge", [Scope::Read, Scope::Configure], secret));
        let tokens = TokensInForce::new(credential.into_iter().collect::<Tokens>());
        crate::logging::start(&Log { level: log_level, format: log_format });
        let options = EdgeOptions { listen, app, region, api, http_listen, tokens };
        let app = match EdgeApp::build(&options) {
            Ok(app) => app,
            Err(error) => {
                writeln!(out, "cannot start: {error}")?;
                return Ok(ExitCode::from(EXIT_CANNOT_START));
            }
        };
        let [edge, api, pages] = app.addresses();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut stops = Stops::listen()?;
            writeln!(out, "tidegate {}", env!("CARGO_PKG_VERSION"))?;
            writeln!(out, "  edge          tcp://{edge}")?;
            writeln!(out, "  registration  http://{api}   (POST /api/v1/register)")?;
            writeln!(out, "  operator      http://{pages}   (/livez, /readyz, /metrics)")?;
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
