//! The service of CONTRIBUTING.md, whole: it says greetings, which are documents, on a listener of its own.
//!
//! It comes into the process as every service does, by its value in the list of services, which is `GREETER`. The tests
//! start the program's own [`App`] with that list. In a crate of its own, the parts 2 and 3 would be that crate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use axum::routing::get;
use axum::{Json, Router};
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tidegate::config::{
    Checker, Config, Environment, File, Flags, Listener, Loaded, Mistakes, SERVICES, ServiceConfig,
    ServiceListener, Table, load, load_for,
};
use tidegate::serve::{App, BoundService, Door, Standalone, StartError, apply};
use tidegate_access::guard::Guard;
use tidegate_access::routes::ApiRoutes;
use tidegate_admin::api::documents::{self, Resource, routes_of};
use tidegate_algorithms::document::{DocumentReader, Mistake};
use tidegate_control::{Change, Configuration, Kind, Origin, Parts, Service, Services, SetAside, Snapshot};
use tidegate_net::drain::Stage;
use tidegate_net::http::{Body, Handle, HandleFuture, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;

// 1. What it brings to the configuration: its tables of the file, its listener, and what serves it.

const LISTENER: Listener = Listener::of_settings("greeter", "greeter");

const GREETER: ServiceConfig = ServiceConfig {
    tables: &[
        Table { path: "greeter", schema: || json!({ "type": "object" }) },
        Table { path: "greeting", schema: || json!({ "type": "array" }) },
    ],
    check,
    listeners: |config| vec![ServiceListener::plain(LISTENER, "listen", declared(config).listen)],
    warnings: |_| Vec::new(),
    serve: Some(|config| Box::new(Greeter { listen: declared(config).listen, state: Arc::default() })),
};

fn declared(config: &Config) -> Arc<Declared> {
    config.others.of::<GreetingDocuments>()
}

fn check(checker: &mut Checker<'_>, config: &mut Config) {
    let mut declared = Declared::default();
    let read = declared.read_settings(&checker.table("greeter"));
    read.unwrap_or_else(|mistakes| checker.adopt(mistakes));
    if let Some(address) = declared.listen {
        checker.add_listener(LISTENER, address, "/greeter");
    }
    for (index, entry) in checker.entries("greeting", 100).iter().enumerate() {
        match greeting(entry, &format!("/greeting/{index}")) {
            Ok((name, text)) => drop(declared.greetings.insert(name, text)),
            Err(mistakes) => checker.adopt(mistakes),
        }
    }
    config.others = config.others.clone().with::<GreetingDocuments>(declared);
}

// 2. Its settings and its kind of documents, and what it makes of them.

const GREETING: Kind = Kind::new("greeting");

/// What the file declares.
#[derive(Debug, Default)]
struct Declared {
    listen: Option<SocketAddr>,
    /// Exclamation marks behind each greeting.
    marks: usize,
    greetings: BTreeMap<Arc<str>, Arc<str>>,
}

impl Declared {
    fn read_settings(&mut self, group: &Value) -> Result<(), Vec<Mistake>> {
        let mut reader = DocumentReader::new(group, "/greeter", &["listen", "marks"])?;
        if let Some(text) = reader.text("listen", 1, 64) {
            match text.parse() {
                Ok(address) => self.listen = Some(address),
                Err(_) => reader.mistake("listen", format!("is {text:?}"), "an IP address and a port"),
            }
        }
        self.marks = reader.number("marks", 0, 3).map_or(0, |marks| marks.try_into().unwrap());
        if reader.mistakes.is_empty() { Ok(()) } else { Err(reader.mistakes) }
    }
}

/// Reads a document: `{"name": "hello", "text": "Hello"}`.
fn greeting(document: &Value, pointer: &str) -> Result<(Arc<str>, Arc<str>), Vec<Mistake>> {
    let mut reader = DocumentReader::new(document, pointer, &["name", "text"])?;
    let (name, text) = (reader.name("name"), reader.text("text", 1, 64));
    if reader.field("text").is_none() {
        reader.mistake("text", "is missing", "a text of 1 to 64 bytes");
    }
    match (name, text) {
        (Some(name), Some(text)) if reader.mistakes.is_empty() => Ok((name.into(), text.into())),
        _ => Err(reader.mistakes),
    }
}

/// What is in force. A greeting that is none is set aside.
#[derive(Debug, Default)]
struct GreetingSet {
    layer: Arc<Declared>,
    in_force: BTreeMap<Arc<str>, (Arc<str>, Origin)>,
    set_aside: Vec<SetAside>,
}

/// The service as the configuration knows it.
struct GreetingDocuments(Arc<State>);

impl Service for GreetingDocuments {
    const KINDS: &'static [Kind] = &[GREETING];
    type Layer = Declared;
    type Set = GreetingSet;

    fn assemble(&self, layer: Arc<Declared>, stored: &Snapshot) -> GreetingSet {
        let declared =
            layer.greetings.iter().map(|(name, text)| (name.clone(), (text.clone(), Origin::File)));
        let mut set = GreetingSet { in_force: declared.collect(), ..GreetingSet::default() };
        for document in stored.documents(GREETING) {
            let (name, revision) = (document.name.clone(), document.revision);
            let body = serde_json::from_str(&document.body).unwrap_or_default();
            match greeting(&body, &format!("/greeting/{name}")) {
                Ok((_, text)) => drop(set.in_force.insert(name, (text, Origin::Stored(revision)))),
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

// 3. Its listener, and its page of the admin API. Its documents are a resource there already.

#[derive(Debug, Default)]
struct State {
    in_force: Mutex<Arc<GreetingSet>>,
    said: AtomicU64,
    address: OnceLock<SocketAddr>,
}

#[derive(Debug)]
struct GreetingHandle(Arc<State>);

impl Handle for GreetingHandle {
    fn handle<'a>(&'a self, request: Request<RequestBody>, _: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move {
            let set = self.0.in_force.lock().unwrap().clone();
            let Some((text, _)) = set.in_force.get(request.uri().path().trim_start_matches('/')) else {
                return Reply::refusal(StatusCode::NOT_FOUND, "there is no such greeting");
            };
            self.0.said.fetch_add(1, Relaxed);
            let marks = "!".repeat(set.layer.marks);
            Reply::new(Route::new(1), Response::new(Body::from(format!("{text}{marks}"))))
        })
    }
}

static GREETINGS: Resource = Resource::new(GREETING, "/v1/greetings", "/v1/greetings/{name}");

#[derive(Debug)]
struct Greeter {
    listen: Option<SocketAddr>,
    state: Arc<State>,
}

impl Standalone for Greeter {
    fn documents(&self, services: Services) -> Services {
        services.with(GreetingDocuments(self.state.clone()))
    }

    fn routes(&self, guard: &Arc<Guard>, configuration: &Configuration) -> ApiRoutes {
        let state = self.state.clone();
        let page = move || {
            let (listen, said) = (state.address.get(), state.said.load(Relaxed));
            std::future::ready(Json(json!({ "listen": listen, "said": said })))
        };
        let page = ApiRoutes::new(Router::new().route("/v1/greeter", get(page)), &["/v1/greeter"], guard);
        routes_of(guard, configuration, &[&GREETINGS]).with(page)
    }

    fn described(&self) -> Value {
        documents::described(&[&GREETINGS])
    }

    fn bind(&self, door: &mut Door<'_>) -> Result<Vec<Box<dyn BoundService>>, StartError> {
        let Some(address) = self.listen else { return Ok(Vec::new()) };
        let handle = GreetingHandle(self.state.clone());
        let bound = door.http(LISTENER, address, &["other", "/{name}"], handle)?;
        self.state.address.get_or_init(|| bound.address());
        Ok(vec![Box::new(bound)])
    }
}

// The tests.

const TOKEN: &str = "a-secret-of-the-operator";

fn loaded(text: &str) -> Result<Loaded, Mistakes> {
    let (services, file) = ([SERVICES, &[GREETER]].concat(), File { name: "file", bytes: text.as_bytes() });
    load_for(&services, Some(file), &Environment::default(), &Flags::default())
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
fn its_tables_are_checked_with_all_others() {
    let text = "http.listen = \"127.0.0.1:4000\"\n[greeter]\nlisten = \"127.0.0.1:4000\"\nmarks = 9\nmark = 1\n\
                [[greeting]]\nname = \"hello\"\n";
    let mistakes = loaded(text).unwrap_err().to_string();
    let expected = "\
file:3:10: greeter.listen: is 127.0.0.1:4000, as is http.listen (accepted: an address of its own)
file:4:9: greeter.marks: is 9 (accepted: a whole number from 0 to 3)
file:5:8: greeter.mark: is not a known key; did you mean \"marks\"? (accepted: listen, marks)
file:6:1: greeting[0].text: is missing (accepted: a text of 1 to 64 bytes)";
    assert_eq!(mistakes, expected);
    let file = File { name: "file", bytes: b"greeter.marks = 1" };
    let stranger = load(Some(file), &Environment::default(), &Flags::default()).unwrap_err();
    assert_eq!(stranger.list()[0].path, "greeter", "who does not have the service refuses its table");
}

#[test]
fn it_is_served_by_the_program_beside_the_others() {
    let data = tempfile::tempdir().unwrap();
    let file = |greeting: &str| {
        format!(
            "data_dir = {:?}\nruntime.workers = 1\nmemory.snapshot = false\nadmin.token = {TOKEN:?}\n\
             http.listen = \"127.0.0.1:0\"\ngrpc.listen = \"off\"\nresp.listen = \"off\"\nintake.listen = \"off\"\n\
             greeter = {{ listen = \"127.0.0.1:0\", marks = 1 }}\n[[greeting]]\nname = \"hello\"\ntext = {greeting:?}\n",
            data.path()
        )
    };
    let config = loaded(&file("Hello from the file")).unwrap().config;
    let mut app = App::build(&config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    app.start();
    let (admin, null) = (app.addresses().http, json!(null));
    let page = || serde_json::from_str::<Value>(&ask("GET", admin, "/v1/greeter", TOKEN, &null).1).unwrap();
    let listener: SocketAddr = page()["listen"].as_str().unwrap().parse().unwrap();
    let greeting = || ask("GET", listener, "/hello", "", &null);

    assert_eq!(greeting(), (200, "Hello from the file!".to_owned()));
    let other = json!({"text": "Hello from the store"});
    assert_eq!(ask("PUT", admin, "/v1/greetings/hello", TOKEN, &other).0, 200);
    assert_eq!(greeting().1, "Hello from the store!");
    let (status, problem) = ask("PUT", admin, "/v1/greetings/bad", TOKEN, &json!({"text": ""}));
    assert!(status == 422 && problem.contains("\"pointer\":\"/text\""), "{status} {problem}");
    assert!(ask("GET", admin, "/v1/greetings", TOKEN, &null).1.contains("\"origin\":\"stored\""));
    assert_eq!(ask("DELETE", admin, "/v1/greetings/hello", TOKEN, &null).0, 204);
    let next = loaded(&file("Hello from another file")).unwrap().config;
    runtime.block_on(apply(&app, &config, &next)).unwrap();
    assert_eq!(greeting().1, "Hello from another file!");
    assert_eq!(ask("GET", listener, "/bye", "", &null).0, 404);

    // A page that the guard does not name is closed.
    assert_eq!(ask("GET", admin, "/v1/greeter", "", &null).0, 401);
    assert_eq!(page()["said"], 3);
    assert!(ask("GET", admin, "/openapi.json", "", &null).1.contains("/v1/greetings/{name}"));
    assert!(ask("GET", admin, "/metrics", "", &null).1.contains("server=\"greeter\""));
    app.drain().advance(Stage::Stopped);
    runtime.block_on(app.stop());
}
