//! `tidegate revert`: puts the documents of an earlier revision in force again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::keys::Server;
use super::{EXIT_REFUSED, terminal};

/// Puts what was stored at an earlier revision in force again, all of it or nothing: policies, clients' limits, routes,
/// upstreams, the candidate, backends and places of the edge. API keys and registrations stay as they are. A token, where one
/// is demanded, is taken from the environment: `TIDEGATE_TOKEN`. Exit code 0: done, 1: not.
#[derive(Debug, clap::Args)]
pub struct Revert {
    /// The revision, of `GET /v1/audit`.
    revision: u64,
    /// Only if this is the newest revision, so that no change is undone unseen.
    #[arg(long, value_name = "REVISION")]
    if_newest: Option<u64>,
    #[command(flatten)]
    server: Server,
}

impl Revert {
    /// Asks, and prints the reply.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let mut body = json!({ "revision": self.revision });
        if let Some(newest) = self.if_newest {
            body["if_newest"] = newest.into();
        }
        match self.server.ask("POST", "/v1/revert", Some(&body)) {
            Ok(reply) if io::stdout().is_terminal() => {
                out.write_all(terminal::for_output(&sentences(&reply)).as_bytes())?;
            }
            Ok(reply) => writeln!(out, "{reply}")?,
            Err(reason) => {
                terminal::say(&reason);
                return Ok(ExitCode::from(EXIT_REFUSED));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A line for each document, and one for all.
fn sentences(reply: &Value) -> String {
    let mut text = String::new();
    let changes = reply["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    for change in changes {
        let word = |name: &str| change[name].as_str().unwrap_or_default();
        let name = word("name").escape_debug();
        text.push_str(&format!("{} {} {name}\n", word("action"), word("kind")));
    }
    let (to, revision) = (&reply["reverted_to"], &reply["revision"]);
    match changes.len() {
        0 => text.push_str(&format!("nothing differs from revision {to}\n")),
        _ => text.push_str(&format!("as it was at revision {to}; the newest revision is {revision}\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_that_went_back_has_a_line() {
        let reply = json!({"revision": 9, "reverted_to": 7, "changes": [{"kind": "route", "name": "a\u{1b}", "action": "delete"}]});
        let expected = "delete route a\\u{1b}\nas it was at revision 7; the newest revision is 9\n";
        assert_eq!(sentences(&reply), expected);
        let nothing = json!({"revision": 7, "reverted_to": 7, "changes": []});
        assert_eq!(sentences(&nothing), "nothing differs from revision 7\n");
    }
}
