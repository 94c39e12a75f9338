//! Which server a command asks, and how: `--server`, `--ca` and `--token-file`, the same for all commands that ask one.
//!
//! A token is never a flag, because flags show in `ps`: it comes from the environment or from a file. HTTPS is the TLS that a
//! gateway speaks with its servers (`server/tls.rs`), so that `--ca` is believed as `tls.ca_file` of an upstream is.

mod tls;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tidegate_upstream::endpoint::EndpointUrl;
use tidegate_upstream::tls::{TlsClient, TlsSettings};
use ureq::RequestBuilder;
use ureq::typestate::{WithBody, WithoutBody};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, DefaultConnector};

use super::files;
use crate::config::{INTAKE_SERVER_VARIABLE, SERVER_VARIABLE, TOKEN_VARIABLE, read_token};
use tls::TlsConnector;

/// How long an answer of the admin API may take, and a connection to any server.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// Longest file of authorities.
const MAX_CA_BYTES: usize = 1 << 20;
/// Most characters of another program's answer that are shown.
const MAX_SHOWN: usize = 200;
/// What `--server` takes, in words.
const ACCEPTED: &str = "http://HOST:PORT or https://HOST:PORT";
/// Where an intake listens by default.
const INTAKE: &str = "http://127.0.0.1:4002";

/// Which server is asked.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Server {
    /// The service, or its admin API where that has a listener of its own: http:// or https://.
    #[arg(long, global = true, value_name = "URL", env = SERVER_VARIABLE, default_value = "http://127.0.0.1:4000")]
    #[arg(value_parser = server_url)]
    server: String,
    /// Certificates (PEM) to trust for https://, in place of the system's authorities.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file with the token to show; without it, the environment's TIDEGATE_TOKEN.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The same of commands that ask an intake, which has a listener of its own.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("server", at_an_intake))]
pub(super) struct IntakeServer {
    #[command(flatten)]
    server: Server,
}

fn at_an_intake(server: clap::Arg) -> clap::Arg {
    server.help("The intake: http:// or https://").default_value(INTAKE).env(INTAKE_SERVER_VARIABLE)
}

/// A server's URL, without a slash at its end.
pub(super) fn server_url(text: &str) -> Result<String, String> {
    let is_one = EndpointUrl::parse(text).is_some_and(|url| !url.has_query());
    let url = text.trim_end_matches('/').to_owned();
    if is_one { Ok(url) } else { Err(format!("expected {ACCEPTED}")) }
}

/// The URL of a page.
pub(super) fn page(text: &str) -> Result<String, String> {
    let is_one = EndpointUrl::parse(text).is_some();
    if is_one { Ok(text.to_owned()) } else { Err(format!("expected {}", EndpointUrl::ACCEPTED)) }
}

/// A client that takes every status as an answer, and waits `deadline` for one. TLS is set up for an `url` of `https://`.
///
/// # Errors
/// When the file of certificates cannot be read, is too long, or holds none, in words.
pub(super) fn agent(url: &str, ca: Option<&Path>, deadline: Duration) -> Result<ureq::Agent, String> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(deadline));
    let config = config.timeout_connect(Some(deadline.min(DEADLINE))).build();
    if !url.to_ascii_lowercase().starts_with("https:") {
        return Ok(ureq::Agent::new_with_config(config));
    }
    let authorities = ca.map(|file| files::bytes_within(file, MAX_CA_BYTES)).transpose();
    let authorities = authorities.map_err(|error| format!("--ca {error}\n"))?;
    let settings = TlsSettings {
        authorities: authorities.map(Into::into),
        protocols: vec!["http/1.1"],
        ..TlsSettings::default()
    };
    let client = TlsClient::new(settings).map_err(|error| match ca {
        Some(file) => format!("--ca {}: {error}\n", file.display()),
        None => format!("{url}: TLS {error}\n"),
    })?;
    let connector = DefaultConnector::default().chain(TlsConnector::new(client));
    Ok(ureq::Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// Why there is no answer, and what may help.
pub(super) fn no_answer(url: &str, error: &dyn Display) -> String {
    let said = error.to_string();
    let help = if said.contains("invalid peer certificate") {
        "the certificate must be good and have this host's name; --ca FILE names whom to trust"
    } else if said.contains("http parse fail") && url.starts_with("http:") {
        "does it speak TLS? then its URL begins with https://"
    } else if said.contains("corrupt message") {
        "does it speak TLS? if not, its URL begins with http://"
    } else {
        "is `tidegate serve` running there? --server names another"
    };
    format!("{url}: {} ({help})\n", said.escape_debug())
}

/// Why a request was refused: its status, and what is wrong with which field.
pub(super) fn refused(problem: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().escape_debug().to_string();
    let mut lines =
        format!("{} {}: {}\n", problem["status"], text(&problem["title"]), text(&problem["detail"]));
    for error in problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default() {
        lines.push_str(&format!("  {}: {}\n", text(&error["pointer"]), text(&error["detail"])));
    }
    lines
}

/// What is said of an answer that is a refusal. A body that is no problem document is another program's: it is shown from its
/// beginning, behind the URL.
pub(super) fn refusal(url: &str, status: StatusCode, body: &str) -> String {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    if problem["status"].is_u64() {
        return refused(&problem);
    }
    let shown: String = body.trim().chars().take(MAX_SHOWN).collect();
    format!("{url}: {status}: {} (is this `tidegate serve`?)\n", shown.escape_debug())
}

impl IntakeServer {
    /// Its URL, for messages.
    pub(super) fn url(&self) -> &str {
        &self.server.server
    }

    /// As [`Server::client`].
    pub(super) fn client(&self, deadline: Duration) -> Result<Client, String> {
        self.server.client(deadline)
    }
}

impl Server {
    /// A client of this server, which waits `deadline` for each answer.
    ///
    /// # Errors
    /// When the certificates or the token cannot be read, in words.
    pub(super) fn client(&self, deadline: Duration) -> Result<Client, String> {
        let agent = agent(&self.server, self.ca.as_deref(), deadline)?;
        let authorization = self.token()?.map(|token| format!("Bearer {token}"));
        Ok(Client { agent, url: self.server.clone(), authorization })
    }

    fn token(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.token_file else {
            return Ok(std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()));
        };
        match read_token(file) {
            Ok(Some(token)) => Ok(Some(token)),
            Ok(None) => Err(format!("--token-file {}: there is no such file\n", file.display())),
            Err(error) => Err(format!("--token-file {}: {error}\n", file.display())),
        }
    }
}

/// A client of one server, with its token.
#[derive(Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    /// The field that shows its token.
    authorization: Option<String>,
}

impl Client {
    /// A request for what is at `path`.
    pub(super) fn get(&self, path: &str) -> RequestBuilder<WithoutBody> {
        self.with_token(self.agent.get(self.at(path)))
    }

    /// A request that has a body.
    pub(super) fn post(&self, path: &str) -> RequestBuilder<WithBody> {
        self.with_token(self.agent.post(self.at(path)))
    }

    /// The server, for messages.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The URL of `path`, which begins with a slash.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn with_token<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// The reply's JSON, null for a reply without a body; or in words why there is none.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let url = self.at(path);
        let mut request =
            http::Request::builder().method(method).uri(&url).header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request.body(body).map_err(|error| no_answer(&url, &error))?;
        let mut reply = self.agent.run(request).map_err(|error| no_answer(&url, &error))?;
        let text = reply.body_mut().read_to_string().map_err(|error| no_answer(&url, &error))?;
        if !reply.status().is_success() {
            return Err(refusal(&url, reply.status(), &text));
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| no_answer(&url, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_and_no_word() {
        for bad in [
            "foo",
            "",
            "127.0.0.1:4000",
            "ftp://a",
            "http://",
            "http://a:99999",
            "http://u:p@a",
            "http://a/?b",
        ] {
            assert!(server_url(bad).is_err(), "{bad}");
        }
        assert_eq!(server_url("https://a.example/").unwrap(), "https://a.example");
        assert_eq!(server_url("http://[::1]:4000/below").unwrap(), "http://[::1]:4000/below");
        assert!(page("http://a/metrics?x=1").is_ok() && page("foo").is_err());
    }

    #[test]
    fn what_failed_says_what_may_help() {
        let help = |url: &str, said: &str| no_answer(url, &said);
        assert!(help("https://a", "io: invalid peer certificate: UnknownIssuer").contains("--ca FILE"));
        assert!(help("http://a", "protocol: http parse fail: x").contains("https://"));
        assert!(help("https://a", "protocol: http parse fail: x").contains("--server"));
        assert!(help("http://a", "io: Connection refused").contains("--server"));
    }

    #[test]
    fn a_refusal_is_said_as_a_sentence_and_another_programs_answer_as_it_is() {
        let problem = "{\"status\": 401, \"title\": \"Unauthorized\", \"detail\": \"a token is needed\"}";
        let said = refusal("http://a", StatusCode::UNAUTHORIZED, problem);
        assert_eq!(said, "401 Unauthorized: a token is needed\n");
        for page in ["<html>\n", "", "[1]", "7", "{\"status\": \"ok\"}"] {
            let said = refusal("http://a/v1/keys", StatusCode::BAD_GATEWAY, page);
            let shown = page.trim().escape_debug();
            assert_eq!(
                said,
                format!("http://a/v1/keys: 502 Bad Gateway: {shown} (is this `tidegate serve`?)\n")
            );
        }
        assert!(refusal("http://a", StatusCode::NOT_FOUND, &"x".repeat(900)).len() < 300);
    }
}
