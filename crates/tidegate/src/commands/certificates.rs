//! `tidegate certificates`: names, ends and origins of the certificates that a node shows its clients and servers.
//!
//! On a terminal it prints a table, and otherwise the reply's JSON, as `tidegate keys list` does.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::Value;

use super::server::{DEADLINE, Server};
use super::{EXIT_REFUSED, terminal};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Lists the certificates that a server shows: names, ends, origins.
///
/// Those of the node that is asked, the one that ends first before the others: what its listeners show, and what the
/// servers of its upstreams are shown. It needs the scope `read`. A token, where one is demanded, is taken from the
/// environment, `TIDEGATE_TOKEN`, or from the file of --token-file. Exit code 0: they are listed, 1: not.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate certificates
  tidegate certificates --json
  tidegate certificates --server https://10.0.0.5:4001 --ca authority.pem")]
pub struct CertificatesCommand {
    /// Print the whole answer, as JSON, on a terminal too.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl CertificatesCommand {
    /// Asks, and prints the reply.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let is_for_people = io::stdout().is_terminal() && !self.json;
        let client = self.server.client(DEADLINE);
        match client.and_then(|client| client.ask("GET", "/v1/certificates", None)) {
            Ok(reply) if is_for_people => {
                out.write_all(terminal::for_output(&table(&reply)).as_bytes())?;
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

/// A line for each certificate, below the columns' names; what is wrong with one stands below it.
fn table(reply: &Value) -> String {
    let certificates = reply["certificates"].as_array().map(Vec::as_slice).unwrap_or_default();
    if certificates.is_empty() {
        return "no certificate is shown\n".to_owned();
    }
    let head = ["ENDS", "LEFT", "NAMES", "ORIGIN", "SHOWN BY"].map(str::to_owned);
    let rows: Vec<[String; 5]> = [head].into_iter().chain(certificates.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 4] = std::array::from_fn(width);
    let troubles = [None].into_iter().chain(certificates.iter().map(|it| it["trouble"].as_str()));
    let mut text = String::new();
    for (row, trouble) in rows.iter().zip(troubles) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(&format!("{}  {}\n", cells.collect::<Vec<_>>().join("  "), row[4]));
        if let Some(trouble) = trouble {
            text.push_str(&format!("  {}\n", trouble.escape_debug()));
        }
    }
    text
}

fn row(certificate: &Value) -> [String; 5] {
    let text = |value: &Value| value.as_str().unwrap_or("-").escape_debug().to_string();
    let list = |all: Vec<String>| if all.is_empty() { "-".to_owned() } else { all.join(", ") };
    let names = certificate["names"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = names.iter().map(text).collect();
    let origin = match certificate["origin"].as_str() {
        Some("file" | "upstream") => text(&certificate["file"]),
        _ => format!("acme: {}", text(&certificate["directory"])),
    };
    let upstreams = certificate["upstreams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let upstreams = upstreams.iter().map(|name| format!("upstream {}", text(name)));
    let listeners = certificate["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown_by: Vec<String> = listeners.iter().map(text).chain(upstreams).collect();
    let left = certificate["seconds_left"].as_u64().map_or_else(|| "-".to_owned(), left);
    [text(&certificate["not_after"]), left, list(names), origin, list(shown_by)]
}

/// A time to an end, in its largest whole unit.
fn left(seconds: u64) -> String {
    match seconds {
        0 => "ended".to_owned(),
        DAY.. => format!("{} d", seconds / DAY),
        HOUR.. => format!("{} h", seconds / HOUR),
        _ => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_certificate_has_a_line_and_trouble_stands_below_it() {
        let reply = json!({"certificates": [
            {"names": ["shop.example"], "listeners": ["gateway[0]"], "origin": "acme", "directory": "https://a/dir",
             "trouble": "there is no certificate yet"},
            {"names": ["pay.example", "\u{1b}"], "listeners": ["gateway[0]", "http"], "origin": "file", "file": "/pay.pem",
             "not_after": "2027-01-31T08:00:00Z", "seconds_left": 7_200},
            {"names": [], "listeners": [], "upstreams": ["a", "b"], "origin": "upstream", "file": "/client.pem",
             "not_after": "2027-02-01T08:00:00Z", "seconds_left": 93_600},
        ]});
        let expected = "\
ENDS                  LEFT  NAMES                ORIGIN               SHOWN BY
-                     -     shop.example         acme: https://a/dir  gateway[0]
  there is no certificate yet
2027-01-31T08:00:00Z  2 h   pay.example, \\u{1b}  /pay.pem             gateway[0], http
2027-02-01T08:00:00Z  1 d   -                    /client.pem          upstream a, upstream b
";
        assert_eq!(table(&reply), expected);
        assert_eq!(table(&json!({"certificates": []})), "no certificate is shown\n");
        assert_eq!([0, 59, 3_600, 86_399, 86_400].map(left), ["ended", "0 min", "1 h", "23 h", "1 d"]);
    }
}
