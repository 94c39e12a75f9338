//! `tidegate revert`: puts the documents of an earlier revision in force again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::server::{DEADLINE, Server};
use super::{EXIT_REFUSED, terminal};

/// Puts what was stored at an earlier revision in force again.
///
/// All of it or nothing: policies, clients' limits, routes, upstreams, the candidate, backends and places of the edge.
/// API keys and registrations stay as they are. A token, where one is demanded, is taken from the environment,
/// `TIDEGATE_TOKEN`, or from the file of --token-file. Exit code 0: done, 1: not.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate revert 41
  tidegate revert 41 --if-newest 44")]
pub struct Revert {
    /// The revision, of `GET /v1/audit`.
    revision: u64,
    /// Only if this is the newest revision, so that no change is undone unseen.
    #[arg(long, value_name = "REVISION")]
    if_newest: Option<u64>,
    /// Only say what would change, with each document as it is and as it would be; nothing is changed.
    #[arg(long)]
    preview: bool,
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
        if self.preview {
            body["preview"] = true.into();
        }
        if let Some(newest) = self.if_newest {
            body["if_newest"] = newest.into();
        }
        let client = self.server.client(DEADLINE);
        match client.and_then(|client| client.ask("POST", "/v1/revert", Some(&body))) {
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
        for (mark, side) in [('-', "before"), ('+', "after")] {
            if let Some(document) = change["difference"].get(side).filter(|it| !it.is_null()) {
                text.push_str(&format!("  {mark} {document}\n"));
            }
        }
    }
    let (to, revision) = (&reply["reverted_to"], &reply["revision"]);
    match changes.len() {
        0 => text.push_str(&format!("nothing differs from revision {to}\n")),
        _ if reply["preview"] == true => {
            text.push_str(&format!(
                "this would change; nothing was changed, and the newest revision is {revision}\n"
            ));
        }
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
        let preview = json!({"revision": 9, "reverted_to": 7, "preview": true, "changes": [
            {"kind": "route", "name": "a", "action": "delete", "difference": {"before": {"path": "/"}, "after": null}}
        ]});
        let expected = "delete route a\n  - {\"path\":\"/\"}\n\
            this would change; nothing was changed, and the newest revision is 9\n";
        assert_eq!(sentences(&preview), expected);
        let nothing = json!({"revision": 7, "reverted_to": 7, "changes": []});
        assert_eq!(sentences(&nothing), "nothing differs from revision 7\n");
    }
}
