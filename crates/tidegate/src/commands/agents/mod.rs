//! Load from several machines: the flags of both sides (`load --agent`, and `--agents` of `load` and `saturate`).
//!
//! ```text
//!   load, saturate --agents a,b,c                         load --agent LISTEN
//!     AgentFlags -> links (link) ---- POST, JSON ---->  AgentDoor (listen) -> tester's AgentDesk
//!                -> tester's Agents -> Cluster             token, bounds
//! ```
//!
//! Both sides share a token. It is never a flag, because flags show in `ps`. An agent without one listens on loopback only: who
//! reaches it may have it put load on anything that it reaches.

mod link;
mod listen;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tidegate_judge::measurement::AgentShare;
use tidegate_judge::record::StepRecord;
use tidegate_tester::cluster::Job;
use tidegate_tester::cluster::agents::{AgentLink, Agents};
use tidegate_tester::preflight::{Need, Severity};

use super::{files, server, terminal};
use crate::config::{AGENT_TOKEN_VARIABLE, read_token};
use link::HttpAgent;
pub(super) use listen::{AgentListenFlags, listen};

/// Largest file of authorities, in bytes.
const MAX_CA_BYTES: usize = 1 << 20;
/// What `--agents` takes, in words.
const ACCEPTED: &str = "HOST:PORT, http://HOST:PORT or https://HOST:PORT";

/// Which agents make the load.
#[derive(Debug, clap::Args)]
pub(super) struct AgentFlags {
    /// Agents that make the load in place of this machine, each started as `tidegate load --agent LISTEN`: HOST:PORT,
    /// or https://HOST:PORT.
    #[arg(long, value_name = "AGENT,...", value_delimiter = ',', value_parser = agent_url)]
    agents: Vec<String>,
    /// Certificates (PEM) to trust for agents of https://, in place of the system's authorities.
    #[arg(hide_short_help = true, long, value_name = "FILE", requires = "agents")]
    agents_ca: Option<PathBuf>,
    /// A file with the token that agents and their coordinator share; without it, the environment's TIDEGATE_AGENT_TOKEN.
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    agent_token_file: Option<PathBuf>,
}

/// How a run is to be spread over agents.
pub(super) struct AgentWish {
    /// Processes of each.
    pub(super) processes: Option<u32>,
    /// Threads of each process.
    pub(super) threads: Option<u32>,
    /// Whatever this machine thinks of it.
    pub(super) force: bool,
    /// Findings that are said, from this on.
    pub(super) said: Severity,
}

impl AgentFlags {
    /// Whether there are some.
    pub(super) fn are_any(&self) -> bool {
        !self.agents.is_empty()
    }

    /// The shared token, if there is one.
    pub(super) fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.agent_token_file {
            None => Ok(std::env::var(AGENT_TOKEN_VARIABLE).ok().filter(|token| !token.is_empty())),
            Some(file) => {
                let token =
                    read_token(file).with_context(|| format!("--agent-token-file {}", file.display()))?;
                let missing = || format!("--agent-token-file {}: there is no such file", file.display());
                token.with_context(missing).map(Some)
            }
        }
    }

    /// Asks all agents who they are, says what their machines allow, and makes `job` one of theirs. None when a machine does not allow
    /// the run.
    pub(super) fn spread(
        &self,
        job: &mut Job,
        need: &Need,
        wish: &AgentWish,
    ) -> anyhow::Result<Option<Agents>> {
        if !need.sources.is_empty() {
            bail!("source addresses are one machine's: with --agents, each agent chooses its own");
        }
        let mut agents = Agents::meet(self.links()?, env!("CARGO_PKG_VERSION"))?;
        let decisions = agents.decide(need);
        let mut errors = io::stderr().lock();
        for (agent, decision) in &decisions {
            for finding in decision.findings.iter().filter(|finding| finding.severity >= wish.said) {
                write!(errors, "{}", terminal::for_errors(&format!("{finding} (at {agent})\n")))?;
            }
        }
        if decisions.iter().any(|(_, decision)| decision.blocked()) && !wish.force {
            return Ok(None);
        }
        let (scenario, _) = job.resolve()?;
        if let Some(path) = &scenario.trust.authorities {
            job.trust.pem = Some(files::text_within(path, MAX_CA_BYTES)?);
        }
        let agents = agents.of_size(wish.processes, wish.threads);
        Ok(Some(if wish.force { agents.without_contact() } else { agents }))
    }

    fn links(&self) -> anyhow::Result<Vec<Arc<dyn AgentLink>>> {
        let different: BTreeSet<&String> = self.agents.iter().collect();
        if different.len() < self.agents.len() {
            bail!("--agents: one is listed twice");
        }
        let authorization = self.token()?.map(|token| format!("Bearer {token}"));
        let link = |url: &String| -> anyhow::Result<Arc<dyn AgentLink>> {
            Ok(Arc::new(HttpAgent::new(url, self.agents_ca(), authorization.clone())?))
        };
        self.agents.iter().map(link).collect()
    }

    fn agents_ca(&self) -> Option<&Path> {
        self.agents_ca.as_deref()
    }
}

/// Says which agents were lost, and what became of their shares; whether none was.
pub(super) fn say_lost(agents: &[AgentShare], consequence: &str) -> io::Result<bool> {
    let mut is_whole = true;
    for share in agents {
        if let Some(reason) = &share.lost {
            is_whole = false;
            let said = format!("note    agent {} was lost, and {consequence}: {reason}\n", share.agent);
            write!(io::stderr(), "{}", terminal::for_errors(&said))?;
        }
    }
    Ok(is_whole)
}

/// The agents of a search, in words for its report's line about what made the load. Those that were lost are said on standard error, too.
pub(super) fn in_words(at_first: Option<usize>, steps: &[StepRecord]) -> io::Result<String> {
    let Some(count) = at_first else { return Ok(String::new()) };
    let mut words = format!(", by {count} agents");
    for step in steps {
        say_lost(&step.agents, "the step was run again by the others")?;
        for share in step.agents.iter().filter(|share| share.lost.is_some()) {
            words.push_str(&format!(", {} lost on the way", share.agent));
        }
    }
    Ok(words)
}

/// An agent's URL, without a slash at its end.
fn agent_url(text: &str) -> Result<String, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    server::server_url(&url).map_err(|_| format!("expected {ACCEPTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_an_address_or_a_url() {
        assert_eq!(agent_url("10.0.0.2:4200").unwrap(), "http://10.0.0.2:4200");
        assert_eq!(agent_url("https://load.example:4200/").unwrap(), "https://load.example:4200");
        for bad in ["", "ftp://a", "a b", "http://a/?b"] {
            assert!(agent_url(bad).is_err(), "{bad}");
        }
    }
}
