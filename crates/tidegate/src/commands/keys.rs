//! `tidegate keys ...`: API keys of a running service.
//!
//! On a terminal it prints sentences, and otherwise the reply's JSON, so that scripts need no flag.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Client, DEADLINE, Server};
use super::{EXIT_REFUSED, duration, terminal};

/// Keys that are asked for at once.
const PAGE: usize = 1_000;

/// Issues, lists, rotates, moves, narrows and revokes API keys.
///
/// A token, where one is demanded, is taken from the environment, `TIDEGATE_TOKEN`, or from the file of --token-file.
/// Exit code 0: done, 1: not.
#[derive(Debug, clap::Args)]
pub struct Keys {
    #[command(subcommand)]
    action: KeyAction,
    #[command(flatten)]
    server: Server,
}

/// What is done.
#[derive(Debug, clap::Subcommand)]
enum KeyAction {
    /// Issues a key, and prints it: nobody can learn it later.
    #[command(after_long_help = "\
Examples:
  tidegate keys issue --consumer acme --tier pro --days 90
  tidegate keys issue --consumer till --routes orders,carts --scopes orders:read")]
    Issue {
        /// Who uses it.
        #[arg(long)]
        consumer: String,
        /// Its tier, which some policy has numbers for.
        #[arg(long)]
        tier: Option<String>,
        /// Routes that it opens, separated by commas; all that ask for keys without it.
        #[arg(long, value_delimiter = ',', value_name = "ROUTES")]
        routes: Vec<String>,
        /// Its scopes, separated by commas, which routes ask for by `key_scope`.
        #[arg(long, value_delimiter = ',', value_name = "SCOPES")]
        scopes: Vec<String>,
        /// How long it lasts: days, or as 12h or 90d; for ever without it.
        #[arg(long, value_name = "TIME", value_parser = duration::of_days)]
        days: Option<Duration>,
    },
    /// Lists the keys, without their secrets.
    #[command(after_long_help = "\
Examples:
  tidegate keys list")]
    List,
    /// Gives a key another secret, and prints that.
    #[command(after_long_help = "\
Examples:
  tidegate keys rotate 5f2c9a --overlap 24")]
    Rotate {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// How long the secret before is good: hours, or as 30m or 2d; 0: it ends at once.
        #[arg(long, value_name = "TIME", default_value = "24", value_parser = duration::of_hours)]
        overlap: Duration,
    },
    /// Ends a key, at all nodes within a second.
    #[command(after_long_help = "\
Examples:
  tidegate keys revoke 5f2c9a")]
    Revoke {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
    },
    /// Moves a key to another tier; what it has used stays used.
    #[command(after_long_help = "\
Examples:
  tidegate keys set-tier 5f2c9a pro")]
    SetTier {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// The tier; none without it.
        tier: Option<String>,
    },
    /// Says which routes a key opens: 403 on all others.
    #[command(after_long_help = "\
Examples:
  tidegate keys set-routes 5f2c9a orders carts
  tidegate keys set-routes 5f2c9a --all")]
    SetRoutes {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// The routes.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        routes: Vec<String>,
        /// All routes that ask for keys.
        #[arg(long)]
        all: bool,
    },
    /// Gives a key these scopes, and no others.
    #[command(after_long_help = "\
Examples:
  tidegate keys set-scopes 5f2c9a orders:read orders:write")]
    SetScopes {
        /// The key's id.
        #[arg(value_parser = id)]
        id: String,
        /// The scopes; none without them.
        scopes: Vec<String>,
    },
}

impl Keys {
    /// Asks, and prints the reply.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let for_people = io::stdout().is_terminal();
        let Self { action, server } = self;
        let done = server.client(DEADLINE).and_then(|client| action.ask(&client));
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

impl KeyAction {
    /// The keys that are shown of what the service answers.
    fn ask(self, client: &Client) -> Result<Vec<Value>, String> {
        let one = |method: &str, path: &str, body: Value| {
            client.ask(method, path, Some(&body)).map(|reply| vec![reply])
        };
        match self {
            Self::Issue { consumer, tier, routes, scopes, days } => {
                let mut body = json!({ "consumer": consumer });
                for (field, names) in [("routes", routes), ("scopes", scopes)] {
                    if !names.is_empty() {
                        body[field] = names.into();
                    }
                }
                if let Some(tier) = tier {
                    body["tier"] = tier.into();
                }
                if let Some(lifetime) = days {
                    body["lifetime_seconds"] = whole_seconds(lifetime).into();
                }
                one("POST", "/v1/keys", body)
            }
            Self::List => list(client),
            Self::Rotate { id, overlap } => {
                let body = json!({ "overlap_seconds": whole_seconds(overlap) });
                one("POST", &format!("/v1/keys/{id}/rotation"), body)
            }
            Self::Revoke { id } => client.ask("DELETE", &format!("/v1/keys/{id}"), None).map(|_| Vec::new()),
            Self::SetTier { id, tier } => one("PATCH", &format!("/v1/keys/{id}"), json!({ "tier": tier })),
            Self::SetRoutes { id, routes, all } => {
                let routes = (!all).then_some(routes);
                one("PATCH", &format!("/v1/keys/{id}"), json!({ "routes": routes }))
            }
            Self::SetScopes { id, scopes } => {
                one("PATCH", &format!("/v1/keys/{id}"), json!({ "scopes": scopes }))
            }
        }
    }
}

/// Seconds, as the service has them: a part of one counts as a whole one, so that a short overlap is not none.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Every key, page by page.
fn list(client: &Client) -> Result<Vec<Value>, String> {
    let mut keys: Vec<Value> = Vec::new();
    loop {
        let last = keys.last().and_then(|key| id(key["id"].as_str()?).ok()).unwrap_or_default();
        let page = client.ask("GET", &format!("/v1/keys?limit={PAGE}&after={last}"), None)?;
        let Value::Array(page) = page else { return Err("the reply is no list of keys\n".to_owned()) };
        let is_last = page.len() < PAGE;
        keys.extend(page);
        if is_last {
            return Ok(keys);
        }
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
    for (name, before) in [("routes", "for the routes"), ("scopes", "with the scopes")] {
        let names: Vec<&str> = key[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            line.push_str(&format!(", {before} {}", names.join(" ").escape_debug()));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_a_whole_one_and_nothing_stays_nothing() {
        for (millis, seconds) in [(0, 0), (1, 1), (500, 1), (1_000, 1), (1_001, 2), (90_000, 90)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }

    #[test]
    fn a_key_reads_as_a_sentence() {
        let shown = json!({"id": "abc", "consumer": "a \u{1b}[31m", "tier": "pro", "last_used": "2026-11-23T08:00:00Z"});
        assert_eq!(sentence(&shown), "abc of a \\u{1b}[31m, tier pro, last used 2026-11-23T08:00:00Z\n");
        let narrow = json!({"id": "abc", "consumer": "acme", "routes": ["a", "b"], "scopes": ["a:read"]});
        assert_eq!(sentence(&narrow), "abc of acme, for the routes a b, with the scopes a:read\n");
        let issued = json!({"key": "tgk_abc_x", "id": "abc", "consumer": "acme"});
        assert_eq!(sentence(&issued), "tgk_abc_x\n  keep it: it is not shown again\n  abc of acme\n");
    }
}
