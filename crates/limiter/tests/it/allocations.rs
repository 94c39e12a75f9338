//! How many times a decision asks the allocator for memory, once buffers have grown: by the engine, and from socket
//! to socket over HTTP and RESP.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use http::Request;
use serde_json::json;
use tidegate_access::guard::Guard;
use tidegate_access::routes::Api;
use tidegate_access::tokens::TokensInForce;
use tidegate_algorithms::policy::{Attributes, parse};
use tidegate_limiter::answers::Door;
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::http::{ApiSettings, Decisions, Service};
use tidegate_limiter::policy_set::{FileLayer, PolicySet};
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::{Gate, accept};
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::connection::{Peer, ServeConnection};
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{Answered, Handle, HandleFuture, HttpConfig, Plain, RequestBody, Server, Unwritten};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::stats::Stats;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Turns before those that are counted, and those.
const WARM_UP: u64 = 200;
const COUNTED: u64 = 1_000;

/// An engine under `policies`: algorithm and limit.
fn engine(policies: &[(&str, u64)]) -> Arc<Engine> {
    let policy = |(number, (algorithm, limit)): (usize, &(&str, u64))| {
        let name = format!("policy-{number}");
        let mut document = json!({
            "name": name, "key": ["client_id"], "algorithm": algorithm, "limit": limit, "window_seconds": 3_600,
        });
        if algorithm.ends_with("bucket") {
            document["burst"] = json!(limit);
        }
        parse(&document, "").unwrap()
    };
    let policies = policies.iter().enumerate().map(policy).collect();
    let file = FileLayer { policies, ..FileLayer::default() };
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::new(file), tidegate_control::Snapshot::default(), &tallies);
    Arc::new(Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start()))
}

/// Whether a decision that need not be waited for allows this client.
fn decide(engine: &Engine, client: &[u8]) -> bool {
    let pairs = [("client_id", client), ("resource", b"api")];
    let ask = Ask {
        attributes: Attributes::new(&pairs),
        cost: 1,
        peek: false,
        can_release: false,
        door: Door::Http,
    };
    match pin!(engine.decide(&ask)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.unwrap().allowed,
        Poll::Pending => panic!("a decision in memory waits for nothing"),
    }
}

/// The allocations of many decisions of the engine about a hundred clients, each of which is `allowed` or not.
#[track_caller]
fn by_engine(engine: &Engine, allowed: bool) -> u64 {
    let clients: Vec<String> = (0..100).map(|number| format!("client-{number}")).collect();
    let run = |rounds: u64| {
        let mut alike = true;
        for _ in 0..rounds {
            for client in &clients {
                alike &= decide(engine, client.as_bytes()) == allowed;
            }
        }
        alike
    };
    // Enough for all to be among the clients that are remembered: of eight decisions one is looked at, at random.
    run(400);
    let mut alike = false;
    let counted = measure(|| alike = run(10));
    assert!(alike, "not all are {allowed}: {:?}", engine.tallies().read());
    counted.count_total
}

#[test]
fn a_decision_under_one_policy_or_two_allocates_nothing() {
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window", "sliding_counter"] {
        assert_eq!(by_engine(&engine(&[(algorithm, 1_000_000)]), true), 0, "{algorithm}");
    }
    let two = engine(&[("token_bucket", 1_000_000), ("sliding_counter", 1_000_000)]);
    assert_eq!(by_engine(&two, true), 0, "two policies");
}

#[test]
fn a_denial_allocates_nothing() {
    for policies in
        [&[("fixed_window", 1)][..], &[("sliding_log", 1)], &[("fixed_window", 1), ("token_bucket", 9)]]
    {
        assert_eq!(by_engine(&engine(policies), false), 0, "{policies:?}");
    }
}

/// The API as the binary serves it, without its log.
struct Routes(Service);

impl Handle for Routes {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move { self.0.answer(request, peer).await })
    }

    fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        self.0.answer_at_once(request, peer, reply)
    }
}

fn gate() -> Gate {
    let (drain, stats) = (Drain::new(), Arc::new(Stats::new(1, &["/"])));
    drain.advance(Stage::Ready);
    Gate { permits: Permits::new(10), buffers: Buffers::new(1 << 20), drain, stats }
}

fn http() -> impl ServeConnection {
    let (engine, guard) = (engine(&[("token_bucket", 1_000_000)]), Arc::new(Guard::default()));
    let decisions = Decisions::new(engine, guard.clone(), ApiSettings::default());
    let api = Api::new(decisions.routes(), guard, 0, 64 << 10);
    Server::new(Routes(Service::new(decisions, api)), HttpConfig::default(), gate())
}

fn resp() -> impl ServeConnection {
    let engine = engine(&[("token_bucket", 1_000_000)]);
    resp::Server::new(&engine, TokensInForce::default(), RespConfig::default(), gate())
}

/// The allocations of `server` for each turn of a connection: `request` is sent, and a reply read until it `is_whole`.
/// Client and server share a thread, and the client allocates nothing.
fn in_turns(server: impl ServeConnection, request: &[u8], is_whole: fn(&[u8]) -> bool) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut client = runtime.block_on(connect(server));
    take_turns(&runtime, &mut client, WARM_UP, request, is_whole);
    let counted = measure(|| take_turns(&runtime, &mut client, COUNTED, request, is_whole));
    counted.count_total as f64 / COUNTED as f64
}

async fn connect(server: impl ServeConnection) -> TcpStream {
    let config = ListenConfig::new("127.0.0.1:0".parse().unwrap(), NonZeroUsize::MIN);
    let listeners = Listeners::bind(&config).unwrap();
    let address = listeners.address();
    let socket = listeners.into_sockets().pop().unwrap();
    drop(tokio::spawn(async move {
        let serve = |stream, address, held| {
            let peer = Peer { address, is_tls: false, tls_name: None, core: 0, is_for_operation: false };
            drop(tokio::spawn(server.clone().serve_connection(stream, peer, None, held)));
        };
        accept(socket, server.gate(), 0, serve).await.unwrap();
    }));
    TcpStream::connect(address).await.unwrap()
}

fn take_turns(
    runtime: &Runtime,
    client: &mut TcpStream,
    turns: u64,
    request: &[u8],
    is_whole: fn(&[u8]) -> bool,
) {
    let mut reply = [0; 4 << 10];
    runtime.block_on(async {
        for _ in 0..turns {
            client.write_all(request).await.unwrap();
            let mut length = 0;
            while !is_whole(&reply[..length]) {
                let read = client.read(&mut reply[length..]).await.unwrap();
                assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&reply[..length]));
                length += read;
            }
        }
    });
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "host: t\r\ncontent-type: application/json\r\naccept: */*\r\nuser-agent: test/1\r\n";
    format!("POST {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}").into_bytes()
}

#[test]
fn the_simple_api_allocates_nothing() {
    let request = post("/api/v1/ratelimit", r#"{"client_id":"user123","resource":"api"}"#);
    assert_eq!(in_turns(http(), &request, |reply| reply.ends_with(b"}")), 0.0);
}

#[test]
fn a_decision_on_attributes_allocates_once() {
    let request =
        post("/v1/decisions", r#"{"attributes":{"client_id":"user123","path":"/v1/pay"},"cost":1}"#);
    assert_eq!(in_turns(http(), &request, |reply| reply.ends_with(b"}")), 1.0, "the list of attributes");
}

#[test]
fn a_check_allocates_nothing() {
    let request =
        b"GET /v1/check HTTP/1.0\r\nhost: t\r\nx-original-uri: /a\r\nx-original-method: GET\r\n\r\n";
    let request = String::from_utf8_lossy(request).replace("1.0", "1.1");
    assert_eq!(in_turns(http(), request.as_bytes(), |reply| reply.ends_with(b"\r\n\r\n")), 0.0);
}

#[test]
fn a_throttle_command_allocates_nothing() {
    let one =
        b"*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser123\r\n$2\r\n15\r\n$6\r\n300000\r\n$2\r\n60\r\n".to_vec();
    assert_eq!(in_turns(resp(), &one, |reply| reply.iter().filter(|byte| **byte == b'\n').count() == 6), 0.0);
}
