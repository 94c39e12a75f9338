//! `tidegate explain`: asks a running service which way a request or a connection would take, or what its limits would say, and why.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};

use super::sample::attribute;
use super::server::{Server, no_answer};
use super::terminal;

/// Exit code when the gateway gave no answer.
const EXIT_NO_ANSWER: u8 = 1;
/// How long it may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks a running service why it would do what it would do.
///
/// A token, where one is demanded, is taken from the environment, `TIDEGATE_TOKEN`, or from the file of --token-file.
#[derive(Debug, clap::Subcommand)]
pub enum Explain {
    /// Says what each policy would do to a request, and why.
    ///
    /// With numbers that come with the request, it says whether they decide. Charges nothing.
    #[command(after_long_help = "\
Examples:
  tidegate explain decision client_id=user123 resource=api
  tidegate explain decision client_id=user123 --limits '{\"limit\":5,\"window_seconds\":60}'")]
    Decision(ExplainDecision),
    /// Says which route a request would take, and why not the others.
    ///
    /// It also says what its limits would say, and which server would get it. Charges and sends nothing.
    #[command(after_long_help = "\
Examples:
  tidegate explain route host=shop.example path=/api method=GET client_ip=203.0.113.7")]
    Route(ExplainRoute),
    /// Says which backend of the edge a connection would get.
    ///
    /// Every backend has its score, with why the one that wins does.
    #[command(after_long_help = "\
Examples:
  tidegate explain edge --client-ip 203.0.113.7
  tidegate explain edge --client-ip 203.0.113.7 --server-name shop.example --json")]
    Edge(ExplainEdge),
}

/// A connection that is asked about.
#[derive(Debug, clap::Args)]
pub struct ExplainEdge {
    /// Whose it would be.
    #[arg(long, value_name = "ADDRESS")]
    client_ip: IpAddr,
    /// The listener that it would come to; the first one if there are several.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listener: Option<String>,
    /// The server name that it would ask for by TLS.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Print the whole answer, as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

/// A request for a decision that is asked about.
#[derive(Debug, clap::Args)]
pub struct ExplainDecision {
    /// Its attributes, and `cost`.
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = attribute)]
    request: Vec<(String, String)>,
    /// Numbers that come with it, as `limits` of POST /v1/decisions.
    #[arg(long, value_name = "JSON", value_parser = object)]
    limits: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// A request that is asked about.
#[derive(Debug, clap::Args)]
pub struct ExplainRoute {
    /// What is known of it: `host=shop.example path=/api method=GET client_ip=203.0.113.7 header.x-key=1`.
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = attribute)]
    request: Vec<(String, String)>,
    #[command(flatten)]
    server: Server,
}

impl Explain {
    /// Asks, and prints the reply.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        match self {
            Self::Decision(ExplainDecision { mut request, limits, server }) => {
                request.extend(limits.map(|it| ("limits".to_owned(), it)));
                ask(&server, "/v1/explain", request, out, |answer| format!("{answer:#}\n"))
            }
            Self::Route(ExplainRoute { request, server }) => {
                ask(&server, "/v1/explain/route", request, out, |answer| format!("{answer:#}\n"))
            }
            Self::Edge(ExplainEdge { client_ip, listener, server_name, json, server }) => {
                let mut question = vec![("client_ip".to_owned(), client_ip.to_string())];
                question.extend(listener.map(|it| ("listener".to_owned(), it)));
                question.extend(server_name.map(|it| ("server_name".to_owned(), it)));
                let show = |answer: &Value| if json { format!("{answer:#}\n") } else { scores(answer) };
                ask(&server, "/v1/explain/edge", question, out, show)
            }
        }
    }
}

/// The text of a JSON object. What its numbers are, the server reads.
fn object(text: &str) -> Result<String, String> {
    let read = serde_json::from_str::<Map<String, Value>>(text);
    read.map(|_| text.trim().to_owned()).map_err(|error| format!("expected a JSON object: {error}"))
}

/// Asks, and prints a good reply as `show` has it, any other as JSON.
fn ask(
    server: &Server,
    path: &str,
    question: Vec<(String, String)>,
    out: &mut dyn Write,
    show: impl Fn(&Value) -> String,
) -> io::Result<ExitCode> {
    let answered = server.client(DEADLINE).and_then(|client| {
        let reply = client.get(path).query_pairs(question).call();
        let read = reply.and_then(|mut reply| {
            let status = reply.status();
            Ok((status, reply.body_mut().read_json::<Value>()?))
        });
        read.map_err(|error| no_answer(&client.at(path), &error))
    });
    match answered {
        Ok((status, answer)) => {
            let text = if status.is_success() { show(&answer) } else { format!("{answer:#}\n") };
            out.write_all(terminal::for_output(&text).as_bytes())?;
            Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO_ANSWER) })
        }
        Err(reason) => {
            terminal::say(&reason);
            Ok(ExitCode::from(EXIT_NO_ANSWER))
        }
    }
}

/// How the answer puts it that a backend is down.
const CHECKS_FAIL: &str = "its health checks fail";

/// An answer about the edge, a line for the client and one for each backend.
fn scores(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").escape_debug().to_string();
    let mut lines = format!(
        "{}: country {}, region {}, known by {}",
        text(&answer["client"]),
        text(&answer["country"]),
        text(&answer["region"]),
        text(&answer["known_by"])
    );
    // Only what differs from the defaults.
    if answer["spill"].as_str().is_some_and(|spill| spill != "at-hard") {
        lines.push_str(&format!(", spill {}", text(&answer["spill"])));
    }
    if answer["panic"] == true {
        lines.push_str(", panic: no healthy backend has room, so others count, too");
    }
    lines.push('\n');
    let rows = answer["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
    let usual_priority = rows.iter().all(|row| row["priority"] == 0).then_some(0);
    for row in rows {
        let score = row["score"].as_f64().map_or_else(|| "-".to_owned(), |score| format!("{score}"));
        let mut line = format!(
            "  {:<12} {score:>9}  {:<9}  {} of {} connections",
            text(&row["backend"]),
            text(&row["tier"]),
            row["connections"],
            row["hard_limit"]
        );
        for (name, usual) in [("weight", Some(1)), ("priority", usual_priority)] {
            if let Some(number) = row[name].as_u64().filter(|number| Some(*number) != usual) {
                line.push_str(&format!(", {name} {number}"));
            }
        }
        if row["tier_by"] == "round_trip" {
            line.push_str(&format!(", {} ms away", row["round_trip_ms"]));
        }
        let (health, excluded) = (row["health"].as_str(), row["excluded"].as_str());
        if let Some(health) = health.filter(|health| *health != "healthy" && excluded != Some(health)) {
            line.push_str(&format!(", {health}"));
        }
        if let Some(excluded) = excluded {
            line.push_str(&format!(", not used: {excluded}"));
        }
        if row["check_failure"].is_string() {
            let words = if line.ends_with(CHECKS_FAIL) { "" } else { ", its last health check failed" };
            line.push_str(&format!("{words}: {}", text(&row["check_failure"])));
        }
        lines.push_str(&line);
        lines.push('\n');
    }
    let next =
        answer["next"].as_str().map_or_else(|| "none".to_owned(), |next| next.escape_debug().to_string());
    lines.push_str(&format!("next: {next}, for {}\n", text(&answer["why"])));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scores_are_shown_with_what_is_not_as_usual() {
        let row = |name: &str, weight: u32, priority: u32| {
            json!({"backend": name, "tier": "region", "score": 100.0, "connections": 0, "hard_limit": 150,
                "weight": weight, "priority": priority})
        };
        let mut answer = json!({"client": "127.1.0.1", "country": "BR", "region": null, "known_by": "network",
            "spill": "at-hard", "panic": false, "backends": [row("rio", 1, 0)], "next": "rio", "why": "it is there"});
        let usual = "127.1.0.1: country BR, region -, known by network\n\
            \x20 rio                100  region     0 of 150 connections\n\
            next: rio, for it is there\n";
        assert_eq!(scores(&answer), usual);
        answer["spill"] = json!("never");
        answer["panic"] = json!(true);
        answer["backends"] = json!([row("rio", 3, 2)]);
        answer["backends"][0]["excluded"] = json!("others come first");
        answer["backends"][0]["health"] = json!("connections to it fail");
        let other = "127.1.0.1: country BR, region -, known by network, spill never, \
            panic: no healthy backend has room, so others count, too\n\
            \x20 rio                100  region     0 of 150 connections, weight 3, priority 2, connections to it fail, \
            not used: others come first\n\
            next: rio, for it is there\n";
        assert_eq!(scores(&answer), other);
        // Where priorities decide, that of each is shown; what is said twice is not.
        answer["backends"] = json!([row("rio", 1, 0), row("lima", 1, 1)]);
        answer["backends"][1]["health"] = json!(CHECKS_FAIL);
        answer["backends"][1]["excluded"] = json!(CHECKS_FAIL);
        let text = scores(&answer);
        assert!(text.contains("150 connections, priority 0\n"), "{text}");
        assert!(text.contains("150 connections, priority 1, not used: its health checks fail\n"), "{text}");
        // Why a check failed, also where that was not often enough to take the backend down.
        answer["backends"][0]["check_failure"] = json!("answered 503");
        answer["backends"][1]["check_failure"] = json!("connection refused");
        let text = scores(&answer);
        assert!(text.contains("priority 0, its last health check failed: answered 503\n"), "{text}");
        assert!(text.contains("not used: its health checks fail: connection refused\n"), "{text}");
    }
}
