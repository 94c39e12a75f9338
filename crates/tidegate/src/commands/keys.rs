//! `tidegate keys ...`: API keys of a running service.
//!
//! On a terminal it prints sentences, and otherwise the reply's JSON, so that scripts need no flag.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::decide::refused;
use super::{EXIT_REFUSED, terminal};
use crate::config::TOKEN_VARIABLE;

/// How long the service may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Keys that are asked for at once.
const PAGE: usize = 1_000;

/// Issues, lists, rotates, moves and revokes API keys. A token, where one is demanded, is taken from the environment:
/// `TIDEGATE_TOKEN`. Exit code 0: done, 1: not.
#[derive(Debug, clap::Args)]
pub struct Keys {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

/// What is done.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Issues a key, and prints it: nobody can learn it later.
    Issue {
        /// Who uses it.
        #[arg(long)]
        consumer: String,
        /// Its tier, which some policy has numbers for.
        #[arg(long)]
        tier: Option<String>,
        /// How many days it lasts; for ever without it.
        #[arg(long, value_name = "DAYS")]
        days: Option<u64>,
    },
    /// Lists the keys, without their secrets.
    List,
    /// Gives a key another secret, and prints that.
    Rotate {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// How many hours the secret before is good; 0: it ends at once.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u64,
    },
    /// Ends a key, at all nodes within a second.
    Revoke {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
    },
    /// Moves a key to another tier; what it has used stays used.
    SetTier {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// The tier; none without it.
        tier: Option<String>,
    },
}

/// Which service is asked.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// The service, or its admin API where that has a listener of its own.
    #[arg(long = "server", global = true, value_name = "URL", default_value = "http://127.0.0.1:4000")]
    url: String,
}

impl Keys {
    /// Asks, and prints the reply.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let for_people = io::stdout().is_terminal();
        let Self { action, server } = self;
        let done = match action {
            Action::Issue { consumer, tier, days } => {
                let mut body = json!({ "consumer": consumer });
                if let Some(tier) = tier {
                    body["tier"] = tier.into();
                }
                if let Some(days) = days {
                    body["lifetime_seconds"] = days.saturating_mul(86_400).into();
                }
                server.ask("POST", "/v1/keys", Some(&body)).map(|reply| vec![reply])
            }
            Action::List => server.list(),
            Action::Rotate { id, overlap } => {
                let body = json!({ "overlap_seconds": overlap.saturating_mul(3_600) });
                server.ask("POST", &format!("/v1/keys/{id}/rotation"), Some(&body)).map(|it| vec![it])
            }
            Action::Revoke { id } => {
                server.ask("DELETE", &format!("/v1/keys/{id}"), None).map(|_| Vec::new())
            }
            Action::SetTier { id, tier } => {
                let body = json!({ "tier": tier });
                server.ask("PATCH", &format!("/v1/keys/{id}"), Some(&body)).map(|it| vec![it])
            }
        };
        match done {
            Ok(replies) => {
                for reply in replies {
                    if for_people {
                        out.write_all(terminal::for_output(&sentence(&reply)).as_bytes())?;
                    } else {
                        writeln!(out, "{reply}")?;
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(reason) => {
                terminal::say(&reason);
                Ok(ExitCode::from(EXIT_REFUSED))
            }
        }
    }
}

impl Server {
    /// Every key, page by page.
    fn list(&self) -> Result<Vec<Value>, String> {
        let mut keys: Vec<Value> = Vec::new();
        loop {
            let last = keys.last().and_then(|key| id(key["id"].as_str()?).ok()).unwrap_or_default();
            let page = self.ask("GET", &format!("/v1/keys?limit={PAGE}&after={last}"), None)?;
            let Value::Array(page) = page else { return Err("the reply is no list of keys\n".to_owned()) };
            let is_last = page.len() < PAGE;
            keys.extend(page);
            if is_last {
                return Ok(keys);
            }
        }
    }

    /// The reply's JSON, or in words why there is none.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(DEADLINE));
        let agent = ureq::Agent::new_with_config(config.build());
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let mut request =
            http::Request::builder().method(method).uri(&url).header("content-type", "application/json");
        // There is no flag for it, because flags show in `ps`.
        if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let unreachable = |error: &dyn std::fmt::Display| {
            format!("{url}: {error} (is `tidegate serve` running there? --server names another)\n")
        };
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request.body(body).map_err(|error| unreachable(&error))?;
        let mut reply = agent.run(request).map_err(|error| unreachable(&error))?;
        let text = reply.body_mut().read_to_string().map_err(|error| unreachable(&error))?;
        let value = serde_json::from_str(&text).unwrap_or_default();
        if reply.status().is_success() { Ok(value) } else { Err(refused(&value)) }
    }
}

/// An id, which stands in a path as it is.
fn id(text: &str) -> Result<String, String> {
    let is_id = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id { Ok(text.to_owned()) } else { Err("an id is letters and digits".to_owned()) }
}

/// A key, and its text if the reply has it.
fn sentence(key: &Value) -> String {
    let text = |name: &str| key[name].as_str().unwrap_or_default().escape_debug().to_string();
    let mut line = String::new();
    if key["key"].is_string() {
        line.push_str(&format!("{}\n  keep it: it is not shown again\n  ", text("key")));
    }
    line.push_str(&format!("{} of {}", text("id"), text("consumer")));
    for (name, before) in [
        ("tier", "tier"),
        ("expires", "until"),
        ("old_secret_until", "its old secret until"),
        ("last_used", "last used"),
    ] {
        if key[name].is_string() {
            line.push_str(&format!(", {before} {}", text(name)));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_a_sentence() {
        let shown = json!({"id": "abc", "consumer": "a \u{1b}[31m", "tier": "pro", "last_used": "2026-11-23T08:00:00Z"});
        assert_eq!(sentence(&shown), "abc of a \\u{1b}[31m, tier pro, last used 2026-11-23T08:00:00Z\n");
        let issued = json!({"key": "tgk_abc_x", "id": "abc", "consumer": "acme"});
        assert_eq!(sentence(&issued), "tgk_abc_x\n  keep it: it is not shown again\n  abc of acme\n");
    }
}
