//! The rate-limit service over real HTTP/2: what each descriptor is told, and what is refused.

mod written;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tidegate_access::tokens::{Credential, Scope, TokensInForce};
use tidegate_algorithms::policy::{parse, parse_sources};
use tidegate_limiter::engine::Engine;
use tidegate_limiter::grpc::{GrpcService, TEMPLATES};
use tidegate_limiter::no_match::OnNoMatch;
use tidegate_limiter::policy_set::{AttributeSources, FileLayer, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_store::Counters;
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::memory::Memory;
use tidegate_store::redis::{Redis, RedisConfig};
use tidegate_store::shared::Shared;
use tidegate_wire::rls::{
    self, Descriptor, Entry, Hits, Override, RateLimitCode as Code, Request, Response, Unit,
};

struct Running {
    address: SocketAddr,
    client: SendRequest<Full<Bytes>>,
    /// Metadata of each call.
    authorization: &'static str,
    drain: Drain,
    cores: Option<Cores>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.advance(Stage::Stopped);
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
    }
}

async fn start() -> Running {
    start_with(HttpConfig::default(), TokensInForce::default()).await
}

/// 3 an hour per client, 1 an hour per watched one (in shadow mode).
async fn start_with(config: HttpConfig, tokens: TokensInForce) -> Running {
    start_as(config, tokens, FileLayer::default()).await
}

/// As [`start_with`], with where attributes come from as in `layer`.
async fn start_as(config: HttpConfig, tokens: TokensInForce, layer: FileLayer) -> Running {
    start_over(Counters::Memory(Memory::new(16 << 20)), config, tokens, layer).await
}

/// As [`start_as`], with these counters.
async fn start_over(
    counters: Counters,
    config: HttpConfig,
    tokens: TokensInForce,
    layer: FileLayer,
) -> Running {
    start_answering(OnNoMatch::Allow, counters, config, tokens, layer).await
}

/// As [`start_over`], with this answer to requests that no policy applies to.
async fn start_answering(
    on_no_match: OnNoMatch,
    counters: Counters,
    config: HttpConfig,
    tokens: TokensInForce,
    layer: FileLayer,
) -> Running {
    let policies = [
        json!({"name": "per-client", "algorithm": "token_bucket", "limit": 3, "window_seconds": 3600,
               "match": {"domain": "shop"}, "key": ["client"]}),
        json!({"name": "watch", "limit": 1, "window_seconds": 3600, "key": ["watched"], "mode": "shadow"}),
    ];
    let file =
        FileLayer { policies: policies.iter().map(|policy| parse(policy, "").unwrap()).collect(), ..layer };
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::new(file), tidegate_control::Snapshot::default(), &tallies);
    let engine = Engine::new(set, tallies, counters, Clock::start()).on_no_match(on_no_match);
    let cores = Cores::start(NonZeroUsize::MIN).unwrap();
    let drain = Drain::new();
    let gate = Gate {
        permits: Permits::new(10),
        buffers: Buffers::new(64 << 20),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(1, TEMPLATES)),
    };
    let listen = ListenConfig::new("127.0.0.1:0".parse().unwrap(), NonZeroUsize::MIN);
    let listeners = Listeners::bind(&listen).unwrap();
    let address = listeners.address();
    let service = GrpcService::new(Arc::new(engine), drain.clone(), tokens);
    Server::new(service, config, gate).start_http2(&cores, listeners);
    drain.advance(Stage::Ready);
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Running { address, client, authorization: "", drain, cores: Some(cores) }
}

impl Running {
    /// The answer to a call, its body still to come.
    async fn begin(&mut self, path: &str, body: Vec<u8>) -> http::Response<Incoming> {
        let request = http::Request::post(format!("http://tidegate{path}"))
            .header("content-type", "application/grpc")
            .header("x-tenant", "metadata")
            .header("authorization", self.authorization)
            .body(Full::from(body))
            .unwrap();
        self.client.ready().await.unwrap();
        self.client.send_request(request).await.unwrap()
    }

    /// The message's bytes and `grpc-status`, wherever it stands.
    async fn call(&mut self, path: &str, body: Vec<u8>) -> (Bytes, String) {
        let (head, body) = self.begin(path, body).await.into_parts();
        assert_eq!(head.status, 200);
        let body = body.collect().await.unwrap();
        let status = body.trailers().unwrap_or(&head.headers)["grpc-status"].to_str().unwrap().to_owned();
        (body.to_bytes(), status)
    }

    async fn limit(&mut self, request: &Request) -> Result<Response, String> {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        match self.call(path, rls::encode(request)).await {
            (body, status) if status == "0" => Ok(rls::decode(&body).unwrap()),
            (_, status) => Err(status),
        }
    }
}

fn descriptor(key: &str, value: &str) -> Descriptor {
    let entry = Entry { key: key.into(), value: value.into() };
    Descriptor { entries: vec![entry], ..Descriptor::default() }
}

fn request(descriptors: Vec<Descriptor>) -> Request {
    Request { domain: "shop".into(), descriptors, hits_addend: 0 }
}

/// (code, limit, remaining) of each descriptor.
fn told(response: &Response) -> Vec<(Code, u32, u32)> {
    let of = |status: &rls::DescriptorStatus| {
        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
        (status.code(), limit, status.limit_remaining)
    };
    response.statuses.iter().map(of).collect()
}

#[tokio::test]
async fn limits_need_a_token_of_their_scope_where_one_is_demanded_and_probes_none() {
    let tokens = [("envoy", Scope::Decide), ("reader", Scope::Read)]
        .map(|(name, scope)| Credential::new(name, [scope], &format!("the-secret-of-{name}")));
    let tokens = TokensInForce::new(tokens.into_iter().collect());
    let mut service = start_with(HttpConfig::default(), tokens.clone()).await;
    let ask = request(vec![descriptor("client", "a")]);
    let health = "/grpc.health.v1.Health/Check";
    for (authorization, status) in [
        ("", Some("16")),
        ("Bearer the-secret-of-nobody", Some("16")),
        ("Bearer the-secret-of-reader", Some("7")),
        ("Bearer the-secret-of-envoy", None),
    ] {
        service.authorization = authorization;
        assert_eq!(service.limit(&ask).await.err().as_deref(), status, "{authorization}");
        assert_eq!(service.call(health, vec![0; 5]).await.1, "0", "{authorization}");
    }
    tokens.replace([Credential::new("envoy", [Scope::Decide], "another-secret")].into_iter().collect());
    assert_eq!(service.limit(&ask).await.err().as_deref(), Some("16"), "on the same connection");
}

#[tokio::test]
async fn an_answer_without_the_store_is_marked() {
    // A port that is taken, and where nobody listens.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = nobody.local_addr().unwrap().port();
    let config = RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap();
    let guard = Guard::new(Shared::Redis(Redis::start(config)), GuardConfig::default());
    let (config, layer) = (HttpConfig::default(), FileLayer::default());
    let mut service = start_over(Counters::Guarded(guard), config, TokensInForce::default(), layer).await;
    let ask = request(vec![descriptor("client", "a")]);
    let mark = rls::Metadata::of("degraded", "local");
    assert_eq!(service.limit(&ask).await.unwrap().dynamic_metadata, Some(mark));
    let unlimited = request(vec![descriptor("nobody", "x")]);
    let mark = rls::Metadata::of("no_match", "allowed");
    assert_eq!(
        service.limit(&unlimited).await.unwrap().dynamic_metadata,
        Some(mark),
        "the store was not asked"
    );
}

#[tokio::test]
async fn fault_58_an_answer_without_a_policy_is_marked_and_on_no_match_gives_it() {
    for (on_no_match, answer, code) in
        [(OnNoMatch::Allow, "allowed", Code::Ok), (OnNoMatch::Deny, "denied", Code::OverLimit)]
    {
        let (config, layer) = (HttpConfig::default(), FileLayer::default());
        let counters = Counters::Memory(Memory::new(16 << 20));
        let mut service =
            start_answering(on_no_match, counters, config, TokensInForce::default(), layer).await;
        let unmatched = request(vec![descriptor("clint", "a"), descriptor("nobody", "x")]);
        let told_so = service.limit(&unmatched).await.unwrap();
        assert_eq!(told_so.dynamic_metadata, Some(rls::Metadata::of("no_match", answer)));
        assert_eq!((told_so.overall_code(), told(&told_so)), (code, vec![(code, 0, 0); 2]));
        let one_matches = request(vec![descriptor("client", "a"), descriptor("nobody", "x")]);
        let told_so = service.limit(&one_matches).await.unwrap();
        assert_eq!((told_so.overall_code(), told_so.dynamic_metadata), (Code::Ok, None));
    }
}

#[tokio::test]
async fn each_descriptor_is_told_in_order_and_a_denial_charges_nobody() {
    let mut service = start().await;
    let both = request(vec![descriptor("client", "a"), descriptor("nobody", "x"), descriptor("client", "b")]);
    let told_first = service.limit(&both).await.unwrap();
    assert_eq!(told_first.overall_code(), Code::Ok);
    assert_eq!(told(&told_first), [(Code::Ok, 3, 2), (Code::Ok, 0, 0), (Code::Ok, 3, 2)]);
    let limit = told_first.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.name.as_str(), limit.unit()), ("per-client", Unit::Hour));

    let two = Request { hits_addend: 2, ..request(vec![descriptor("client", "a")]) };
    assert_eq!(told(&service.limit(&two).await.unwrap()), [(Code::Ok, 3, 0)]);
    let denied = service.limit(&both).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(told(&denied), [(Code::OverLimit, 3, 0), (Code::Ok, 0, 0), (Code::Ok, 3, 2)]);
    let wait = denied.statuses[0].duration_until_reset.unwrap().seconds;
    assert!((1_190..=1_200).contains(&wait), "{wait}");
}

#[tokio::test]
async fn fault_59_an_attribute_with_a_source_is_the_callers_whatever_a_descriptor_says() {
    let (_, forms) = AttributeSources::PROTOCOLS[1];
    let grpc = parse_sources(&json!({"client": {"header": "x-tenant"}}), "", forms).unwrap();
    let sources = AttributeSources { grpc, ..AttributeSources::default() };
    let mut service = start_as(
        HttpConfig::default(),
        TokensInForce::default(),
        FileLayer { sources, ..FileLayer::default() },
    )
    .await;
    for remaining in [2, 1, 0] {
        let named = format!("client{remaining}");
        let response = service.limit(&request(vec![descriptor("client", &named)])).await.unwrap();
        assert_eq!(told(&response), [(Code::Ok, 3, remaining)], "all are the caller's");
    }
    let denied = service.limit(&request(vec![descriptor("other", "x")])).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_descriptor_has_its_own_hits_and_its_own_limit() {
    let mut service = start().await;
    let hits = |value| Descriptor { hits_addend: Some(Hits { value }), ..descriptor("client", "a") };
    let asked = Request { hits_addend: 9, ..request(vec![hits(3)]) };
    assert_eq!(told(&service.limit(&asked).await.unwrap()), [(Code::Ok, 3, 0)]);
    assert_eq!(told(&service.limit(&request(vec![hits(0)])).await.unwrap()), [(Code::Ok, 3, 0)]);

    let own = |unit: Unit| {
        let limit = Some(Override { requests_per_unit: 2, unit: unit.into() });
        request(vec![Descriptor { limit, ..descriptor("client", "a") }])
    };
    for unit in [Unit::Day, Unit::Month] {
        let answers = [
            service.limit(&own(unit)).await.unwrap(),
            service.limit(&own(unit)).await.unwrap(),
            service.limit(&own(unit)).await.unwrap(),
        ];
        let codes = answers.each_ref().map(|answer| answer.overall_code());
        // A changed limit keeps what was used: the month begins where the day ended.
        let expected =
            if unit == Unit::Day { [Code::Ok, Code::Ok, Code::OverLimit] } else { [Code::OverLimit; 3] };
        assert_eq!(codes, expected, "{unit:?}");
        assert_eq!(answers[0].statuses[0].current_limit.as_ref().unwrap().unit(), unit);
    }
    assert_eq!(service.limit(&own(Unit::Year)).await, Err("3".into()));
}

/// Envoy gives units back by it, from 1.38 on.
#[tokio::test]
async fn negative_hits_give_back_what_was_charged_and_never_charge() {
    let mut service = start().await;
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let hits = |value| Descriptor { hits_addend: Some(Hits { value }), ..descriptor("client", "a") };
    let left = [(Code::Ok, 3, 0)];
    assert_eq!(told(&service.limit(&request(vec![hits(3)])).await.unwrap()), left);
    // As Envoy writes it: the domain, and a descriptor with its entry, 2 units, and field 4.
    let entry = b"\x0a\x0b\x0a\x06client\x12\x01a";
    let descriptor = [&entry[..], b"\x1a\x02\x08\x02", b"\x20\x01"].concat();
    let message = [&b"\x0a\x04shop\x12\x13"[..], &descriptor].concat();
    let (body, status) = service.call(path, [&b"\0\0\0\0\x1b"[..], &message].concat()).await;
    assert_eq!((told(&rls::decode(&body).unwrap()), status.as_str()), (left.to_vec(), "0"));
    assert_eq!(told(&service.limit(&request(vec![hits(1)])).await.unwrap()), [(Code::Ok, 3, 1)]);

    // Never above the limit, and a denial gives nothing back.
    let returned = |value| Descriptor { is_negative_hits: true, ..hits(value) };
    let denied = service.limit(&request(vec![returned(1), hits(2)])).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(told(&service.limit(&request(vec![hits(0)])).await.unwrap()), [(Code::Ok, 3, 1)]);
    let all = service.limit(&request(vec![returned(u64::MAX)])).await.unwrap();
    assert_eq!(all.overall_code(), Code::Ok);
    assert_eq!(told(&service.limit(&request(vec![hits(3)])).await.unwrap()), left);
    assert_eq!(service.limit(&request(vec![hits(1)])).await.unwrap().overall_code(), Code::OverLimit);

    // A limit in the request is counted by itself, and is given back to like any.
    let limit = Some(Override { requests_per_unit: 2, unit: Unit::Day.into() });
    for (descriptor, remaining) in [(hits(2), 0), (returned(1), 0), (hits(1), 0)] {
        let answer = service.limit(&request(vec![Descriptor { limit, ..descriptor }])).await.unwrap();
        assert_eq!(told(&answer), [(Code::Ok, 2, remaining)]);
    }
}

#[tokio::test]
async fn shadow_mode_never_denies() {
    let mut service = start().await;
    for _ in 0..3 {
        let answer = service.limit(&request(vec![descriptor("watched", "a")])).await.unwrap();
        assert_eq!((answer.overall_code(), told(&answer)), (Code::Ok, vec![(Code::Ok, 0, 0)]));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_a_code() {
    let mut service = start().await;
    assert_eq!(service.limit(&request(vec![])).await, Err("3".into()));
    assert_eq!(service.limit(&request(vec![Descriptor::default()])).await, Err("3".into()));
    let nameless = Request { domain: String::new(), ..request(vec![descriptor("client", "a")]) };
    assert_eq!(service.limit(&nameless).await, Err("3".into()));
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    assert_eq!(service.call(path, b"\x01\0\0\0\0".to_vec()).await.1, "12");
    assert_eq!(service.call(path, b"nonsense".to_vec()).await.1, "3");
    assert_eq!(service.call("/no/such", b"\0\0\0\0\0".to_vec()).await.1, "12");
}

#[tokio::test]
async fn health_is_serving_until_the_drain() {
    let mut service = start().await;
    let ask = |name: &str| rls::encode(&Entry { key: name.into(), value: Vec::new() });
    let health = "/grpc.health.v1.Health/Check";
    for name in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let (body, status) = service.call(health, ask(name)).await;
        assert_eq!((&body[..], status.as_str()), (&b"\0\0\0\0\x02\x08\x01"[..], "0"));
    }
    assert_eq!(service.call(health, ask("other")).await.1, "5");
    service.drain.advance(Stage::Draining);
    assert_eq!(&service.call(health, ask("")).await.0[..], b"\0\0\0\0\x02\x08\x02");
}

#[tokio::test]
async fn a_connection_that_only_watches_is_not_idle() {
    let idle_timeout = Duration::from_secs(2);
    let mut service =
        start_with(HttpConfig { idle_timeout, ..HttpConfig::default() }, TokensInForce::default()).await;
    let mut watch = service.begin("/grpc.health.v1.Health/Watch", rls::encode(&Entry::default())).await;
    let first = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&first[..], b"\0\0\0\0\x02\x08\x01");
    // One that was opened later and asks nothing is told to go: by then the watch was judged as well.
    let stream = tokio::net::TcpStream::connect(service.address).await.unwrap();
    let (client, connection) =
        handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    connection.await.unwrap();
    drop(client);
    service.drain.advance(Stage::Draining);
    let last = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&last[..], b"\0\0\0\0\x02\x08\x02");
    let trailers = watch.body_mut().frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
}
