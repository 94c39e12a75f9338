//! The service of CONTRIBUTING.md, whole: it says greetings, which are documents, on a listener of its own.
//!
//! It has what a service has: a group of settings, a kind of documents, a listener, and a page of the admin API.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tidegate_access::guard::Guard;
use tidegate_access::routes::{Api, ApiRoutes};
use tidegate_access::tokens::{Credential, Scope, TokensInForce};
use tidegate_admin::api::documents::{Resource, routes_of};
use tidegate_algorithms::document::{DocumentReader, Mistake};
use tidegate_control::{
    Change, Configuration, Control, Kind, Layers, Limits, Origin, Parts, Service, Services, SetAside,
    Snapshot,
};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{Body, Handle, HttpConfig, Peer, Reply, RequestBody, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{Route, Stats};

// 1. Its kind of documents, and what it makes of them.

const GREETING: Kind = Kind::new("greeting");

/// What the file declares: greetings by name.
type Greetings = BTreeMap<Arc<str>, Arc<str>>;

/// What is in force. A greeting that is none is set aside.
#[derive(Default)]
struct GreetingSet {
    layer: Arc<Greetings>,
    in_force: BTreeMap<Arc<str>, (Arc<str>, Origin)>,
    set_aside: Vec<SetAside>,
}

/// The service.
#[derive(Default)]
struct Greeter {
    in_force: Mutex<Arc<GreetingSet>>,
    said: AtomicU64,
}

fn text_of(document: &Value, pointer: &str) -> Result<Arc<str>, Vec<Mistake>> {
    let mut reader = DocumentReader::new(document, pointer, &["name", "text"])?;
    let text = reader.text("text", 1, 64);
    if text.is_none() && reader.mistakes.is_empty() {
        reader.mistake("text", "is missing", "a text of 1 to 64 bytes");
    }
    text.filter(|_| reader.mistakes.is_empty()).map(Arc::from).ok_or(reader.mistakes)
}

/// The service as the configuration knows it.
struct GreetingDocuments(Arc<Greeter>);

impl Service for GreetingDocuments {
    const KINDS: &'static [Kind] = &[GREETING];
    type Layer = Greetings;
    type Set = GreetingSet;

    fn assemble(&self, layer: Arc<Greetings>, stored: &Snapshot) -> GreetingSet {
        let declared = layer.iter().map(|(name, text)| (name.clone(), (text.clone(), Origin::File)));
        let mut set = GreetingSet { in_force: declared.collect(), ..GreetingSet::default() };
        for document in stored.documents(GREETING) {
            let (name, revision) = (document.name.clone(), document.revision);
            let body = serde_json::from_str(&document.body).unwrap_or_default();
            match text_of(&body, &format!("/greeting/{name}")) {
                Ok(text) => drop(set.in_force.insert(name, (text, Origin::Stored(revision)))),
                Err(mistakes) => set.set_aside.push(SetAside {
                    kind: GREETING,
                    name: name.to_string(),
                    revision: Some(revision),
                    mistakes,
                }),
            }
        }
        GreetingSet { layer, ..set }
    }

    fn after(&self, last: &GreetingSet, stored: &Snapshot) -> GreetingSet {
        self.assemble(last.layer.clone(), stored)
    }

    fn objections(&self, last: &GreetingSet, next: &GreetingSet, _: Option<&Change>) -> Vec<Mistake> {
        let new = next.set_aside.iter().filter(|it| !last.set_aside.contains(it));
        new.flat_map(|it| it.mistakes.clone()).collect()
    }

    fn document(&self, set: &GreetingSet, _: Kind, name: &str) -> Option<Value> {
        set.in_force.get(name).map(|(text, _)| json!({"name": name, "text": text}))
    }

    fn origin(&self, set: &GreetingSet, _: Kind, name: &str) -> Option<Origin> {
        set.in_force.get(name).map(|(_, origin)| *origin)
    }

    fn names(&self, set: &GreetingSet, _: Kind) -> Vec<Arc<str>> {
        set.in_force.keys().cloned().collect()
    }

    fn set_aside(&self, set: &GreetingSet) -> Vec<SetAside> {
        set.set_aside.clone()
    }

    fn set_aside_count(&self, set: &GreetingSet) -> usize {
        set.set_aside.len()
    }

    fn announce(&self, _: Option<&GreetingSet>, _: &GreetingSet) {}

    fn put_in_force(&self, set: Arc<GreetingSet>, _: &Parts) {
        *self.0.in_force.lock().unwrap() = set;
    }
}

// 2. Its listener.

struct GreetingHandle(Arc<Greeter>);

impl Handle for GreetingHandle {
    async fn handle(&self, request: Request<RequestBody>, _: &Peer) -> Reply {
        let set = self.0.in_force.lock().unwrap().clone();
        let Some((text, _)) = set.in_force.get(request.uri().path().trim_start_matches('/')) else {
            return Reply::refusal(StatusCode::NOT_FOUND, "there is no such greeting");
        };
        self.0.said.fetch_add(1, Relaxed);
        Reply::new(Route::new(1), Response::new(Body::from(text.to_string())))
    }
}

// 3. Its settings: a group of the file, checked whole.

struct GreeterSettings {
    listen: SocketAddr,
}

impl GreeterSettings {
    fn check(group: &Value) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(group, "/greeter", &["listen"])?;
        let listen = reader.text("listen", 1, 64).and_then(|text| text.parse().ok());
        if listen.is_none() {
            reader.mistake("listen", "is no address", "an IP address and a port");
        }
        let checked = listen.filter(|_| reader.mistakes.is_empty());
        checked.map(|listen| Self { listen }).ok_or(reader.mistakes)
    }
}

// 4. Its page of the admin API; its documents are a resource there already.

static GREETINGS: Resource = Resource::new(GREETING, "/v1/greetings", "/v1/greetings/{name}");

fn page(greeter: &Arc<Greeter>, guard: &Arc<Guard>) -> ApiRoutes {
    let greeter = greeter.clone();
    let said = move || std::future::ready(greeter.said.load(Relaxed).to_string());
    ApiRoutes::new(Router::new().route("/v1/greeter/said", get(said)), &["/v1/greeter/said"], guard)
}

// 5. The wiring, which the binary does in `serve/mod.rs`.

struct ApiHandle(Api);

impl Handle for ApiHandle {
    async fn handle(&self, request: Request<RequestBody>, _: &Peer) -> Reply {
        self.0.respond(request).await
    }
}

fn serve<H: Handle>(
    handler: H,
    address: SocketAddr,
    names: &[&str],
    drain: &Drain,
    cores: &Cores,
) -> SocketAddr {
    let gate = Gate {
        permits: Permits::new(100),
        buffers: Buffers::new(1 << 20),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(cores.count(), names)),
    };
    let listeners = Listeners::bind(&ListenConfig::new(address, NonZeroUsize::MIN)).unwrap();
    let address = listeners.address();
    Server::new(handler, HttpConfig::default(), gate).start(cores, listeners);
    address
}

fn ask(method: &str, address: SocketAddr, path: &str, token: &str, body: &Value) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request =
        request.header("content-type", "application/json").header("authorization", format!("Bearer {token}"));
    let mut reply = agent.run(request.body(body.to_string()).unwrap()).unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

#[test]
fn a_service_brings_settings_documents_a_listener_and_a_page() {
    let token =
        |scope: Scope| Credential::new(scope.word(), [scope], &format!("a-secret-to-{}", scope.word()));
    let tokens = TokensInForce::new(Scope::ALL.into_iter().map(token).collect());
    let guard = Arc::new(Guard { tokens, ..Guard::default() });
    let mistakes = GreeterSettings::check(&json!({"listen": "nowhere", "liste": 1})).err().unwrap();
    assert_eq!(mistakes.len(), 2, "all mistakes are found: {mistakes:?}");
    let settings = GreeterSettings::check(&json!({"listen": "127.0.0.1:0"})).ok().unwrap();

    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let greeter = Arc::new(Greeter::default());
    let services = Services::default().with(GreetingDocuments(greeter.clone()));
    let layer = Greetings::from([("hello".into(), "Hello from the file".into())]);
    let configuration =
        Configuration::start(control, services, &Layers::default().with::<GreetingDocuments>(layer));
    let routes = routes_of(&guard, &configuration, &[&GREETINGS]).with(page(&greeter, &guard));

    let (drain, cores) = (Drain::new(), Cores::start(NonZeroUsize::MIN).unwrap());
    let names = [&["other"][..], routes.templates()].concat();
    let api = ApiHandle(Api::new(routes, guard, 1, 64 << 10));
    let admin = serve(api, "127.0.0.1:0".parse().unwrap(), &names, &drain, &cores);
    let listener = serve(GreetingHandle(greeter), settings.listen, &["other", "/{name}"], &drain, &cores);
    drain.advance(Stage::Ready);

    let (read, configure) = ("a-secret-to-read", "a-secret-to-configure");
    assert_eq!(ask("GET", listener, "/hello", "", &json!(null)), (200, "Hello from the file".to_owned()));
    let other = json!({"text": "Hello from the store"});
    assert_eq!(ask("PUT", admin, "/v1/greetings/hello", read, &other).0, 403);
    assert_eq!(ask("PUT", admin, "/v1/greetings/hello", configure, &other).0, 200);
    assert_eq!(ask("GET", listener, "/hello", "", &json!(null)), (200, "Hello from the store".to_owned()));
    let (status, problem) = ask("PUT", admin, "/v1/greetings/bad", configure, &json!({"text": ""}));
    assert!(status == 422 && problem.contains("\"pointer\":\"/text\""), "{status} {problem}");
    assert!(ask("GET", admin, "/v1/greetings", read, &json!(null)).1.contains("\"origin\":\"stored\""));
    assert_eq!(ask("DELETE", admin, "/v1/greetings/hello", configure, &json!(null)).0, 204);
    assert_eq!(ask("GET", listener, "/hello", "", &json!(null)).1, "Hello from the file");
    assert_eq!(ask("GET", listener, "/bye", "", &json!(null)).0, 404);
    // A page that no table names is closed.
    assert_eq!(ask("GET", admin, "/v1/greeter/said", "", &json!(null)).0, 401);
    assert_eq!(ask("GET", admin, "/v1/greeter/said", read, &json!(null)), (200, "3".to_owned()));
    drain.advance(Stage::Stopped);
    cores.stop();
}
