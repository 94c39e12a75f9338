//! How a coordinator reaches an agent: HTTP/1.1, over TLS where its URL says so.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use http::Response;
use serde_json::Value;
use tidegate_tester::cluster::agents::{AgentCall, AgentError, AgentLink, MAX_ANSWER_BYTES};

use crate::commands::server;

/// How long a short answer may take.
const QUICK: Duration = Duration::from_secs(10);
/// How long a step may take: a day, and what is around it. The coordinator gives up much earlier an agent that says nothing.
const LONGEST: Duration = Duration::from_secs(25 * 3_600);

/// One agent.
pub(super) struct HttpAgent {
    address: String,
    url: String,
    /// The field that shows the token.
    authorization: Option<String>,
    quick: ureq::Agent,
    patient: ureq::Agent,
}

impl HttpAgent {
    /// The agent at `url`.
    pub(super) fn new(url: &str, ca: Option<&Path>, authorization: Option<String>) -> anyhow::Result<Self> {
        let client = |deadline| {
            server::agent(url, ca, deadline)
                .map_err(|reason| anyhow::anyhow!("--agents: {}", reason.trim_end()))
        };
        Ok(Self {
            address: url.strip_prefix("http://").unwrap_or(url).to_owned(),
            url: url.to_owned(),
            authorization,
            quick: client(QUICK)?,
            patient: client(LONGEST)?,
        })
    }

    fn post(
        &self,
        client: &ureq::Agent,
        call: AgentCall,
        body: &str,
    ) -> Result<Response<ureq::Body>, AgentError> {
        let url = format!("{}{}", self.url, call.path());
        let mut request = client.post(&url).header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut reply = request.send(body).map_err(|error| no_answer(&error))?;
        if reply.status().is_success() {
            return Ok(reply);
        }
        let text = reply.body_mut().read_to_string().unwrap_or_default();
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        Err(AgentError(if problem["status"].is_u64() {
            server::refused(&problem).trim_end().to_owned()
        } else {
            format!("{} (is `tidegate load --agent` there?)", reply.status())
        }))
    }
}

impl AgentLink for HttpAgent {
    fn address(&self) -> &str {
        &self.address
    }

    fn ask(&self, call: AgentCall, body: &str) -> Result<String, AgentError> {
        let mut reply = self.post(&self.quick, call, body)?;
        reply.body_mut().read_to_string().map_err(|error| no_answer(&error))
    }

    fn step(&self, body: &str, line: &mut dyn FnMut(&str) -> bool) -> Result<(), AgentError> {
        let mut reply = self.post(&self.patient, AgentCall::Step, body)?;
        let reader = BufReader::new(reply.body_mut().as_reader().take(MAX_ANSWER_BYTES));
        for text in reader.lines() {
            let text = text.map_err(|error| AgentError(format!("its answer broke off: {error}")))?;
            if !line(&text) {
                break;
            }
        }
        Ok(())
    }
}

fn no_answer(error: &dyn Display) -> AgentError {
    AgentError(format!("{} (is `tidegate load --agent` running there?)", error.to_string().escape_debug()))
}
