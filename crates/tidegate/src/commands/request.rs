//! The flags that say what one request is, for a run without a scenario file, and over what it goes.
//!
//! They become the text of a scenario, so that there is one way to run; a generator process is handed
//! that text. What a connection is made of (HTTP/2, whom to trust) holds for scenario files too.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tidegate_judge::report::FirstReply;
use tidegate_tester::{
    load::{Options, Target, Trust},
    preflight,
};

use super::{files, terminal};

/// One request, and the connections that carry it.
#[derive(Debug, clap::Args)]
pub(super) struct RequestFlags {
    /// Method of the request (default: GET, or POST with --data).
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// A header field, as in "Name: value"; may be given again.
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Body of the request, or the message for grpc://.
    #[arg(long, value_name = "TEXT|@FILE|hex:DIGITS")]
    data: Option<String>,
    /// What is sent to redis://, words apart by blanks, as in "CL.THROTTLE user{{counter}} 15 30 60" (default: PING).
    #[arg(long, value_name = "WORDS")]
    command: Option<String>,
    /// HTTP/2: by ALPN for https://, with prior knowledge for http://.
    #[arg(long)]
    http2: bool,
    /// Authorities (PEM) to trust beside the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Take any certificate.
    #[arg(long)]
    insecure: bool,
}

impl RequestFlags {
    /// Whether HTTP/2 was asked for.
    pub(super) fn http2(&self) -> bool {
        self.http2
    }

    /// The file of authorities to trust.
    pub(super) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Whom to trust; the path is made absolute, for other processes.
    ///
    /// # Errors
    /// When the file is not there.
    pub(super) fn trust(&self) -> anyhow::Result<Trust> {
        let absolute = |path: &PathBuf| {
            path.canonicalize().with_context(|| format!("{} cannot be read", path.display()))
        };
        Ok(Trust {
            authorities: self.ca.as_ref().map(absolute).transpose()?,
            pem: None,
            anyone: self.insecure,
        })
    }

    /// Refuses flags about a request that the scenario would silently win over.
    ///
    /// # Errors
    /// When there are some.
    pub(super) fn only_connection(&self) -> anyhow::Result<()> {
        if self.method.is_some() || !self.headers.is_empty() || self.data.is_some() || self.command.is_some()
        {
            bail!(
                "--method, --header, --data and --command are for a run without a scenario: its file says what is sent"
            );
        }
        Ok(())
    }

    /// The `[[request]]` table of a scenario.
    ///
    /// # Errors
    /// When the URL is no target, or the data or a header is none.
    pub(super) fn table(&self, url: &str) -> anyhow::Result<String> {
        // JSON's strings are TOML's, for what these texts may hold.
        let quoted = |text: &str| serde_json::to_string(text);
        let mut table = format!("[[request]]\npath = {}\n", quoted(&Target::parse(url)?.path)?);
        let default = if self.data.is_some() { "POST" } else { "GET" };
        table.push_str(&format!("method = {}\n", quoted(self.method.as_deref().unwrap_or(default))?));
        let fields = self.headers.iter().map(|field| {
            let (name, value) =
                field.split_once(':').with_context(|| format!("{field:?} is not `Name: value`"))?;
            Ok(format!("{} = {}", quoted(name.trim())?, quoted(value.trim())?))
        });
        let fields: Vec<String> = fields.collect::<anyhow::Result<_>>()?;
        if !fields.is_empty() {
            table.push_str(&format!("headers = {{ {} }}\n", fields.join(", ")));
        }
        if let Some(data) = &self.data {
            table.push_str(&match (data.strip_prefix('@'), data.strip_prefix("hex:")) {
                (Some(path), _) => format!("body_hex = \"{}\"\n", hex(&files::bytes(path.as_ref())?)),
                (_, Some(digits)) => format!("body_hex = {}\n", quoted(digits)?),
                _ => format!("body = {}\n", quoted(data)?),
            });
        }
        if let Some(command) = &self.command {
            let words: Vec<String> = words(command).map(quoted).collect::<Result<_, _>>()?;
            table.push_str(&format!("command = [{}]\n", words.join(", ")));
        }
        Ok(table)
    }
}

/// Says which address a name stands for, where the URL has a name: of several, one was taken for the whole run.
///
/// # Errors
/// When standard error cannot be written to.
pub(super) fn say_address(url: &str, address: SocketAddr) -> io::Result<()> {
    match Target::parse(url) {
        Ok(target) if target.name.parse::<IpAddr>().is_err() => {
            let said = format!("note    {} is taken to be {address}\n", target.name);
            write!(io::stderr(), "{}", terminal::for_errors(&said))
        }
        _ => Ok(()),
    }
}

/// Connects to the target before a run, and says what its first request is answered, where that is in doubt.
///
/// # Errors
/// When the target cannot be reached.
pub(super) fn meet(options: &Options) -> anyhow::Result<Option<FirstReply>> {
    preflight::contact(options)?;
    let reply = preflight::first_reply(options);
    if let Some(reply) = &reply {
        let said = format!("note    {}: {}\n", reply.in_words(), reply.advice());
        write!(io::stderr(), "{}", terminal::for_errors(&said))?;
    }
    Ok(reply)
}

/// Says that most replies were a redirect or a refusal, where they were: redirects count as good unless a scenario says otherwise,
/// and their figures are not those of the page that was meant. 304 and 429 are what somebody asks for.
///
/// # Errors
/// When standard error cannot be written to.
pub(super) fn say_replies(statuses: &BTreeMap<u16, u64>) -> io::Result<()> {
    let all: u64 = statuses.values().sum();
    let is_most = |(status, count): &(&u16, &u64)| **count * 2 > all && ![304, 429].contains(*status);
    let Some((status, _)) = statuses.iter().find(is_most) else { return Ok(()) };
    let advice = match status {
        300..=399 => "redirects are not followed: give the URL that it names",
        401 | 403 => "give with --header what the server asks for",
        400..=499 => "see whether method and path are those that were meant",
        _ => return Ok(()),
    };
    let said = format!("note    most replies were {status}: {advice}\n");
    write!(io::stderr(), "{}", terminal::for_errors(&said))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Words of a command; blanks within `{{ }}` are a variable's.
fn words(command: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    let mut last = ' ';
    let ends = move |c: char| {
        match (last, c) {
            ('{', '{') => inside = true,
            ('}', '}') => inside = false,
            _ => {}
        }
        last = c;
        c.is_whitespace() && !inside
    };
    command.split(ends).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_within_a_variable_do_not_end_a_word() {
        let all: Vec<&str> = words("CL.THROTTLE  user{{random 1 9}} 15 {{counter % 3}}").collect();
        assert_eq!(all, ["CL.THROTTLE", "user{{random 1 9}}", "15", "{{counter % 3}}"]);
    }
}
