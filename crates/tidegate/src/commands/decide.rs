//! `tidegate decide`: asks a running service, for scripts and for trying a policy out.
//!
//! On a terminal it prints sentences, and otherwise the reply's JSON, so that scripts need no flag.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::sample::attribute;
use super::server::{Server, no_answer, refused};
use super::terminal;

/// Exit code of a denial.
const EXIT_DENIED: u8 = 3;
/// Exit code when the service gave no decision.
const EXIT_NO_DECISION: u8 = 1;
/// Where decisions are asked for.
const DECISIONS: &str = "/v1/decisions";
/// How long the service may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks a running service for one decision.
///
/// Exit code 0: allowed, 3: denied, 1: no decision. A token, where one is demanded, is taken from the environment,
/// `TIDEGATE_TOKEN`, or from the file of --token-file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate decide client_id=user123 path=/pay
  tidegate decide client_id=user123 --cost 0
  tidegate decide client_id=user123 --server https://limits.example --ca ca.pem --token-file token")]
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
    #[command(flatten)]
    server: Server,
}

impl Decide {
    /// Asks, and prints the reply: its JSON, or on a terminal what it says.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let attributes: BTreeMap<String, String> = self.attributes.into_iter().collect();
        let body = json!({"attributes": attributes, "cost": self.cost, "peek": self.peek});
        let answer = self.server.client(DEADLINE).and_then(|client| {
            let reply = client.post(DECISIONS).send_json(&body);
            let answer = reply.and_then(|mut reply| reply.body_mut().read_json::<Value>());
            answer.map_err(|error| no_answer(&client.at(DECISIONS), &error))
        });
        match answer {
            Ok(reply) => {
                if io::stdout().is_terminal() {
                    out.write_all(terminal::for_output(&for_people(&reply)).as_bytes())?;
                } else {
                    writeln!(out, "{reply:#}")?;
                }
                Ok(match reply["allowed"].as_bool() {
                    Some(true) => ExitCode::SUCCESS,
                    Some(false) => ExitCode::from(EXIT_DENIED),
                    None => ExitCode::from(EXIT_NO_DECISION),
                })
            }
            Err(reason) => {
                terminal::say(&reason);
                Ok(ExitCode::from(EXIT_NO_DECISION))
            }
        }
    }
}

/// A reply in sentences, a line for the decision and one for each further policy that applied.
fn for_people(reply: &Value) -> String {
    let Some(allowed) = reply["allowed"].as_bool() else { return no_decision(reply) };
    let word = if allowed { "allowed" } else { "denied" };
    if reply["no_match"] == true {
        return format!("{word}: no policy applies to this request, so on_no_match decides\n");
    }
    let mut text = word.to_owned();
    if let Some(policy) = reply["policy"].as_str() {
        text.push_str(&format!(" by {policy:?}: {} of {} left", reply["remaining"], reply["limit"]));
    }
    for (field, before) in [("retry_after_ms", "try again in"), ("delay_ms", "hold it back for")] {
        if let Some(millis) = reply[field].as_u64() {
            text.push_str(&format!(", {before} {}", time(millis)));
        }
    }
    text.push('\n');
    let parts = reply["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    for part in parts.iter().filter(|part| part["policy"] != reply["policy"]) {
        let room = if part["allowed"] == true { "has room" } else { "is used up" };
        let mode = if part["mode"] == "shadow" { " (shadow: it never denies)" } else { "" };
        text.push_str(&format!(
            "  {} {room}: {} of {} left{mode}\n",
            part["policy"], part["remaining"], part["limit"]
        ));
    }
    if let Some(degraded) = reply["degraded"].as_str() {
        text.push_str(&format!("  answered without the store: {degraded:?}\n"));
    }
    if let Some(permit) = reply["permit"].as_str() {
        text.push_str(&format!("  permit: {}\n", permit.escape_debug()));
    }
    text
}

/// A problem document in sentences.
fn no_decision(problem: &Value) -> String {
    format!("no decision: {}", refused(problem))
}

/// Milliseconds as people say them.
fn time(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{} s", millis.div_ceil(1_000)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_reads_as_sentences() {
        let allowed = json!({"allowed": true, "policy": "api", "limit": 100, "remaining": 99, "policies": [
            {"policy": "api", "mode": "enforce", "allowed": true, "limit": 100, "remaining": 99},
            {"policy": "trial", "mode": "shadow", "allowed": false, "limit": 5, "remaining": 0},
        ]});
        assert_eq!(
            for_people(&allowed),
            "allowed by \"api\": 99 of 100 left\n  \"trial\" is used up: 0 of 5 left (shadow: it never denies)\n"
        );
        let denied = json!({"allowed": false, "policy": "api", "limit": 100, "remaining": 0, "retry_after_ms": 11_200,
            "degraded": "local", "policies": []});
        assert_eq!(
            for_people(&denied),
            "denied by \"api\": 0 of 100 left, try again in 12 s\n  answered without the store: \"local\"\n"
        );
        let unmatched = json!({"allowed": true, "no_match": true, "policies": []});
        assert_eq!(
            for_people(&unmatched),
            "allowed: no policy applies to this request, so on_no_match decides\n"
        );
        let problem = json!({"status": 400, "title": "Bad Request", "detail": "a \u{1b}[31m path",
            "errors": [{"pointer": "/attributes/path", "detail": "is ambiguous"}]});
        assert_eq!(
            for_people(&problem),
            "no decision: 400 Bad Request: a \\u{1b}[31m path\n  /attributes/path: is ambiguous\n"
        );
    }
}
