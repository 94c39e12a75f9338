//! The decision service on a free port, with a real control store in a scratch folder.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it"
)]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use http::Request;
use serde_json::Value;
use tidegate_control::{Configuration, Control, Layers, Limits, Services, Snapshot};
use tidegate_limiter::credential::{Credential, Scope, TokensInForce};
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::http::{Api, ApiSettings, ProxyHeaders, Service, TEMPLATES, TrustedOrigins};
use tidegate_limiter::no_match::OnNoMatch;
use tidegate_limiter::policy_set::{FileLayer, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{Answered, Handle, HttpConfig, Peer, Plain, Reply, RequestBody, Server, Unwritten};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

/// A running service; dropping it ends it.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its engine, for a look inside.
    pub engine: Arc<Engine>,
    agent: ureq::Agent,
    token: Option<&'static str>,
    drain: Drain,
    cores: Option<Cores>,
    _data: tempfile::TempDir,
}

/// A reply, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Value,
}

struct Only(Service);

impl Handle for Only {
    async fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        self.0.answer(request, peer).await
    }

    fn answer_at_once(&self, request: &Plain<'_>, _peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        self.0.answer_at_once(request, reply)
    }
}

/// Starts a service with the built-in policy.
pub fn start() -> Running {
    start_with(FileLayer::default(), None)
}

/// Starts a service with a file's policies and, if given, an admin token.
pub fn start_with(file: FileLayer, token: Option<&'static str>) -> Running {
    start_in(tempfile::tempdir().unwrap(), file, token)
}

/// The same, with what is stored in `data`.
pub fn start_in(data: tempfile::TempDir, file: FileLayer, token: Option<&'static str>) -> Running {
    start_as(data, file, token, OnNoMatch::Allow)
}

/// As [`start_in`], with this answer to requests that no policy applies to.
pub fn start_as(
    data: tempfile::TempDir,
    file: FileLayer,
    token: Option<&'static str>,
    on_no_match: OnNoMatch,
) -> Running {
    let operator = [Scope::Refund, Scope::Read, Scope::Configure];
    let tokens = token.map(|token| Credential::new("admin", operator, token)).into_iter().collect();
    let tokens = TokensInForce::new(tokens);
    let mut running = start_all(data, file, tokens, TrustedOrigins::default(), on_no_match);
    running.token = token;
    running
}

/// As [`start_in`], with these tokens, and other machines' pages that it trusts.
pub fn start_guarded(
    data: tempfile::TempDir,
    file: FileLayer,
    tokens: TokensInForce,
    origins: TrustedOrigins,
) -> Running {
    start_all(data, file, tokens, origins, OnNoMatch::Allow)
}

fn start_all(
    data: tempfile::TempDir,
    file: FileLayer,
    tokens: TokensInForce,
    origins: TrustedOrigins,
    on_no_match: OnNoMatch,
) -> Running {
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
    let memory = Memory::new(16 << 20);
    let engine = Engine::new(set, tallies, Counters::Memory(memory), Clock::start());
    let engine = Arc::new(engine.on_no_match(on_no_match));
    let configuration = Configuration::start(
        control,
        Services::default().with(Policies::new(engine.clone())),
        &Layers::default().with::<Policies>(file),
    );
    let settings = ApiSettings {
        tokens,
        origins,
        proxy_headers: ProxyHeaders::Original,
        trusted_hops: 0,
        legacy_headers: true,
        routes: None,
    };
    let service = Service::new(Api::new(engine.clone(), configuration, settings), 1, 64 * 1024);

    let one = NonZeroUsize::MIN;
    let cores = Cores::start(one).unwrap();
    let drain = Drain::new();
    let templates: &'static [&'static str] =
        Box::leak([&["other"][..], &TEMPLATES].concat().into_boxed_slice());
    let gate = Gate {
        permits: Permits::new(1_000),
        buffers: Buffers::new(64 << 20),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(cores.count(), templates)),
    };
    let listeners = Listeners::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap(), one)).unwrap();
    let address = listeners.address();
    Server::new(Only(service), HttpConfig::default(), gate).start(&cores, listeners);
    drain.advance(Stage::Ready);
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    Running { address, engine, agent, token: None, drain, cores: Some(cores), _data: data }
}

impl Running {
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], Some(body.as_bytes()))
    }

    pub fn put(&self, path: &str, body: &str) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], Some(body.as_bytes()))
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], None)
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut reply = match body {
            Some(body) => self.agent.run(request.body(body.to_vec()).unwrap()).unwrap(),
            None => self.agent.run(request.body(()).unwrap()).unwrap(),
        };
        let text = reply.body_mut().read_to_string().unwrap();
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        Answer { status: reply.status().as_u16(), headers: reply.headers().clone(), body }
    }

    /// The same service, asked without its token.
    pub fn without_token(&self, method: &str, path: &str, authorization: Option<&str>) -> u16 {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        request = request.header("content-type", "application/json");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        self.agent.run(request.body(b"{}".to_vec()).unwrap()).unwrap().status().as_u16()
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.advance(Stage::Stopped);
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
    }
}
