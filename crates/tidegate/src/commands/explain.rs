//! `tidegate explain route`: asks a running gateway which way a request would take, and why.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::sample::attribute;
use super::terminal;
use crate::config::TOKEN_VARIABLE;

/// Exit code when the gateway gave no answer.
const EXIT_NO_ANSWER: u8 = 1;
/// How long it may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks a running service why it would do what it would do. A token, where one is demanded, is taken from the
/// environment: `TIDEGATE_TOKEN`.
#[derive(Debug, clap::Subcommand)]
pub enum Explain {
    /// Says which route a request would take and why not the others, what its limits would say, and which server
    /// would get it. Charges and sends nothing.
    Route(ExplainRoute),
}

/// A request that is asked about.
#[derive(Debug, clap::Args)]
pub struct ExplainRoute {
    /// What is known of it: `host=shop.example path=/api method=GET client_ip=203.0.113.7 header.x-key=1`.
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = attribute)]
    request: Vec<(String, String)>,
    /// The service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4000")]
    server: String,
}

impl Explain {
    /// Asks, and prints the reply's JSON.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let Self::Route(ExplainRoute { request, server }) = self;
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(DEADLINE));
        let agent = ureq::Agent::new_with_config(config.build());
        let url = format!("{}/v1/explain/route", server.trim_end_matches('/'));
        let mut question = agent.get(&url).query_pairs(request);
        if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
            question = question.header("authorization", format!("Bearer {token}"));
        }
        let answered = question.call().and_then(|mut reply| {
            let status = reply.status();
            Ok((status, reply.body_mut().read_json::<Value>()?))
        });
        match answered {
            Ok((status, answer)) => {
                out.write_all(terminal::for_output(&format!("{answer:#}\n")).as_bytes())?;
                Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO_ANSWER) })
            }
            Err(error) => {
                terminal::say(&format!(
                    "{url}: {error} (is `tidegate serve` running there? --server names another)\n"
                ));
                Ok(ExitCode::from(EXIT_NO_ANSWER))
            }
        }
    }
}
