//! `tidegate decide`: asks a running service, for scripts and for trying a policy out.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

/// Exit code of a denial.
const EXIT_DENIED: u8 = 3;
/// Exit code when the service gave no decision.
const EXIT_NO_DECISION: u8 = 1;
/// How long the service may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks a running service for one decision. Exit code 0: allowed, 3: denied, 1: no decision.
#[derive(Debug, clap::Args)]
pub struct Decide {
    /// What is known of the request: `client_id=user123 path=/pay`.
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// Units that the request takes; 0 reads what remains.
    #[arg(long, default_value_t = 1)]
    cost: u64,
    /// Answer as if it were spent, and spend nothing.
    #[arg(long)]
    peek: bool,
    /// The service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4000")]
    server: String,
}

fn attribute(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Decide {
    /// Asks, and prints the reply's body.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let attributes: BTreeMap<String, String> = self.attributes.into_iter().collect();
        let body = json!({"attributes": attributes, "cost": self.cost, "peek": self.peek});
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(DEADLINE));
        let agent = ureq::Agent::new_with_config(config.build());
        let url = format!("{}/v1/decisions", self.server.trim_end_matches('/'));
        let asked =
            agent.post(&url).send_json(&body).and_then(|mut reply| reply.body_mut().read_json::<Value>());
        match asked {
            Ok(reply) => {
                writeln!(out, "{reply:#}")?;
                Ok(match reply["allowed"].as_bool() {
                    Some(true) => ExitCode::SUCCESS,
                    Some(false) => ExitCode::from(EXIT_DENIED),
                    None => ExitCode::from(EXIT_NO_DECISION),
                })
            }
            Err(error) => {
                writeln!(out, "{url}: {error} (is `tidegate serve` running there? --server names another)")?;
                Ok(ExitCode::from(EXIT_NO_DECISION))
            }
        }
    }
}
