//! `tidegate load --agent`: a listener whose coordinator has this machine make load.
//!
//! | request | answer |
//! |---|---|
//! | without the token, where there is one | 401 |
//! | from a page of a browser (`Origin`), or not JSON | 403, 415: a page that somebody looks at beside it must not use it |
//! | of another version, or while it works for another run | 409 |
//! | out of range, or not understood | 422, 400 |
//! | a step | 200, and lines of JSON as things happen, the last of them the result or why there is none |
//!
//! One core serves the listener, with the bounds of every other one. The load is made in threads and processes of its own. An
//! agent that is ended cuts its connections: its coordinator leaves out its share, which would be of a shorter time.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use sha2::{Digest as _, Sha256};
use tidegate_access::tokens::bearer;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{
    Body, BodyPace, Handle, HandleFuture, HttpConfig, MinimumRate, Peer, Reply, RequestBody, Server,
};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{Route, Stats};
use tidegate_net::tls::{self, PairFiles, Tls, TlsConfig, TlsFiles};
use tidegate_tester::cluster::agents::{AgentCall, AgentDesk, AgentRefusal, MAX_QUESTION_BYTES};
use tidegate_tester::load::Stop;
use tidegate_tester::preflight::raise_descriptors;
use tidegate_wire::tls_version::TlsVersion;
use tokio::sync::mpsc;

use crate::commands::signals;

/// Connections at a time: a coordinator has one for a step, and one beside it.
const MAX_CONNECTIONS: usize = 64;
/// Lines that wait for a coordinator.
const MAX_LINES: usize = 64;
/// How long a scenario may take to arrive.
const LONGEST_QUESTION: Duration = Duration::from_secs(300);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Application protocols: the reader of lines speaks HTTP/1.1.
const HTTP1: &[&[u8]] = &[b"http/1.1"];

/// Where an agent listens.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct AgentListenFlags {
    /// Make load for a coordinator: listen here for a `tidegate load` or `saturate` with --agents. An address that other
    /// machines reach needs a token.
    #[arg(long, value_name = "LISTEN", conflicts_with_all = ["url", "agents", "scenario"])]
    agent: Option<SocketAddr>,
    /// PEM file with the certificate of --agent, and after it those that lead to its authority: it is then at https://.
    #[arg(hide_short_help = true, long, value_name = "FILE", requires_all = ["agent", "agent_tls_key"])]
    agent_tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of --agent-tls-certificate, not encrypted.
    #[arg(hide_short_help = true, long, value_name = "FILE", requires = "agent_tls_certificate")]
    agent_tls_key: Option<PathBuf>,
}

impl AgentListenFlags {
    /// Where, if it is to be an agent.
    pub(in crate::commands) fn address(&self) -> Option<SocketAddr> {
        self.agent
    }

    fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let pair = self.agent_tls_certificate.clone().zip(self.agent_tls_key.clone());
        let Some((certificate, key)) = pair else { return Ok(None) };
        let pair = Some(PairFiles { certificate, key });
        let config = TlsConfig {
            files: TlsFiles { pair, named: Vec::new(), client_ca: None, is_client_auth_optional: false },
            named: None,
            protocols: HTTP1,
            passed: Vec::new(),
            min_version: TlsVersion::default(),
            handshake_timeout: HANDSHAKE,
            max_handshakes: tls::MAX_HANDSHAKES,
        };
        Ok(Some(Tls::load(config).context("--agent-tls-certificate, --agent-tls-key")?))
    }
}

/// Answers coordinators at `address` until a signal.
///
/// # Errors
/// When it cannot listen there, or others could reach it without a token.
pub(in crate::commands) fn listen(
    flags: &AgentListenFlags,
    address: SocketAddr,
    token: Option<String>,
    desk: AgentDesk,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if token.is_none() && !address.ip().is_loopback() {
        bail!(
            "an agent at {address} would make load for whoever reaches it: set TIDEGATE_AGENT_TOKEN or --agent-token-file, here and at the coordinator"
        );
    }
    raise_descriptors().context("the descriptor limit cannot be raised")?;
    let stop = Stop::default();
    signals::stop_on_signal(stop.clone())?;
    let one = NonZeroUsize::MIN;
    let listeners = Listeners::bind(&ListenConfig::new(address, one))?.with_tls(flags.tls()?);
    let (address, cores, drain) = (listeners.address(), Cores::start(one)?, Drain::new());
    let gate = Gate {
        permits: Permits::new(MAX_CONNECTIONS),
        buffers: Buffers::new(2 * MAX_QUESTION_BYTES),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(one.get(), &["other"])),
    };
    let door = AgentDoor { desk: Arc::new(desk), token: token.map(|token| digest(token.as_bytes())) };
    Server::new(door, config(), gate).start(&cores, listeners);
    drain.advance(Stage::Ready);
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    while !stop.is_stopped() {
        thread::park_timeout(LOOK);
    }
    drain.advance(Stage::Stopped);
    cores.stop();
    Ok(ExitCode::SUCCESS)
}

/// As of every listener, with room and time for a scenario's data.
fn config() -> HttpConfig {
    let rate = MinimumRate { grace: Duration::from_secs(5), bytes_per_second: 1_024 };
    HttpConfig {
        connection_bytes: MAX_QUESTION_BYTES,
        body: BodyPace { deadline: LONGEST_QUESTION, rate },
        ..HttpConfig::default()
    }
}

/// Answers coordinators.
struct AgentDoor {
    desk: Arc<AgentDesk>,
    /// Digest of the shared token.
    token: Option<[u8; 32]>,
}

/// What a coordinator is told instead of an answer.
struct DoorRefusal(StatusCode, String);

impl From<AgentRefusal> for DoorRefusal {
    fn from(refusal: AgentRefusal) -> Self {
        let status = match &refusal {
            AgentRefusal::Busy | AgentRefusal::Version { .. } => StatusCode::CONFLICT,
            AgentRefusal::NoStep => StatusCode::NOT_FOUND,
            AgentRefusal::Unreadable(_) => StatusCode::BAD_REQUEST,
            AgentRefusal::OutOfRange(_) => StatusCode::UNPROCESSABLE_ENTITY,
            AgentRefusal::Machine(_)
            | AgentRefusal::Unreachable(_)
            | AgentRefusal::Step(_)
            | AgentRefusal::Thread(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, refusal.to_string())
    }
}

impl Handle for AgentDoor {
    fn handle<'a>(&'a self, request: Request<RequestBody>, _peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            match self.answer(&head, body).await {
                Ok(body) => {
                    let mut response = Response::new(body);
                    let json = HeaderValue::from_static("application/json");
                    response.headers_mut().insert(CONTENT_TYPE, json);
                    Reply::new(Route::OTHER, response)
                }
                // Its body may not have been read.
                Err(DoorRefusal(status, reason)) => Reply::refusal(status, reason).last(),
            }
        })
    }
}

impl AgentDoor {
    async fn answer(&self, head: &Parts, body: RequestBody) -> Result<Body, DoorRefusal> {
        self.admit(&head.headers)?;
        let call = AgentCall::of_path(head.uri.path()).filter(|_| head.method == Method::POST);
        let unknown = || format!("there is no {} {}", head.method, head.uri.path());
        let call = call.ok_or_else(|| DoorRefusal(StatusCode::NOT_FOUND, unknown()))?;
        let body = body.bytes(MAX_QUESTION_BYTES).await;
        let body = body.map_err(|error| DoorRefusal(error.status(), error.to_string()))?;
        if call != AgentCall::Step {
            return Ok(Body::from(self.desk.answer(call, &body)?));
        }
        let (sender, lines) = mpsc::channel(MAX_LINES);
        let say = move |line: String| sender.blocking_send(Bytes::from(line)).is_ok();
        self.desk.begin(&body, Box::new(say))?;
        Ok(Body::streamed(AgentLines(lines)))
    }

    fn admit(&self, fields: &HeaderMap) -> Result<(), DoorRefusal> {
        if fields.contains_key(ORIGIN) {
            let reason = "an agent answers coordinators, and no page of a browser";
            return Err(DoorRefusal(StatusCode::FORBIDDEN, reason.to_owned()));
        }
        let shown = fields.get(AUTHORIZATION).and_then(|field| bearer(field.as_bytes()));
        if let Some(token) = &self.token
            && shown.map(digest).as_ref() != Some(token)
        {
            let reason = "this agent needs its token: set TIDEGATE_AGENT_TOKEN or --agent-token-file";
            return Err(DoorRefusal(StatusCode::UNAUTHORIZED, reason.to_owned()));
        }
        if fields.get(CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
            let reason = "a question is application/json";
            return Err(DoorRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason.to_owned()));
        }
        Ok(())
    }
}

/// Digests are compared, so that how long it takes says nothing of the token.
fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Lines as they come; they end with the step.
struct AgentLines(mpsc::Receiver<Bytes>);

impl http_body::Body for AgentLines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
