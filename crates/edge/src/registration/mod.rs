//! The registration API: backends say that they are there, and are routed to at once.
//!
//! ```text
//!   POST /api/v1/register ──> rules ──> store (durable, audited) ──> in force ──> 201
//!   POST /api/v1/heartbeat/{id} ──> the time it was last heard of, in memory alone
//!   nothing heard for heartbeat_ttl ──> removed from the store, and from what is in force
//! ```
//!
//! A registration decides where clients' connections go, so (fault 47) it needs a token where one is demanded.
//! Without a token only requests pass that no web page can have made. Its address must be in the list, if there is
//! one; a loopback address passes only if the API itself is on one, and a link-local, multicast or unspecified
//! address never does. What registers is an address, never a name, so that nobody can point it elsewhere afterwards.
//!
//! Where nodes share their configuration, a backend registers at one of them and is in force at all; it sends its
//! heartbeats to that one, which removes it when they do not come. When that node is gone, each of the others gives the
//! backend as long again to register with one of them.

mod registry;
mod rules;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use thiserror::Error;
use tidegate_algorithms::document::{DocumentReader, Mistake};
use tidegate_net::http::{Body, Handle, HandleFuture, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;
use tidegate_wire::bodies::{UniqueJson, read};

pub use registry::{MemoryStore, Registry};
pub use rules::AddressRules;

use crate::config::BackendConfig;
use crate::service::Edge;

/// What a listener's metrics call requests of the API.
pub const TEMPLATES: &[&str] = &[
    "other",
    "/health",
    "/api/v1/register",
    "/api/v1/heartbeat/{id}",
    "/api/v1/backends",
    "/api/v1/backends/{id}",
];

/// Largest body of a registration.
const MAX_BODY: usize = 16 << 10;

const KEYS: [&str; 10] =
    ["id", "app", "region", "country", "ip", "port", "weight", "soft_limit", "hard_limit", "check"];

/// Why a registration was not stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It has mistakes, or does not go with what is in force.
    #[error("the registration is refused")]
    Refused(Vec<Mistake>),
    /// Try again later.
    #[error("{0}")]
    Unavailable(String),
}

/// The author of a registration or removal, and the address it came from.
#[derive(Clone, Debug)]
pub struct By {
    /// A token's name, `local` where none is demanded, or what stands for its absence.
    pub name: Arc<str>,
    /// The address at the other end of the connection; `None` where nobody asked.
    pub from: Option<IpAddr>,
}

/// What a store answers with.
pub type Stored<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Where registrations are kept. What is stored is in force when the answer comes.
pub trait RegistrationStore: fmt::Debug + Send + Sync + 'static {
    /// Stores the document of a backend, unless the same one is there. `by` is for the audit log.
    fn put<'a>(&'a self, name: &'a str, document: Value, by: &'a By) -> Stored<'a>;

    /// Removes it, if it is there; with `registrar`, only if it is still registered at that node.
    fn remove<'a>(&'a self, name: &'a str, registrar: Option<u32>, by: &'a By) -> Stored<'a>;

    /// The number of this node among those that share what is stored.
    fn own(&self) -> u32;

    /// The nodes that are there now; `None` while this node does not know.
    fn nodes(&self) -> Option<Arc<HashSet<u32>>>;
}

/// Who may ask.
pub trait Admission: fmt::Debug + Send + Sync + 'static {
    /// The name of the client that may read, or change if `changes`; `None` if no token is needed for that.
    ///
    /// # Errors
    /// When a token is needed and `secret` is not the secret of a valid one.
    fn admit(&self, changes: bool, secret: Option<&[u8]>) -> Result<Option<Arc<str>>, Unadmitted>;
}

/// The token is missing, not known, or does not have the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a token that may do this is needed: authorization: Bearer ...")]
pub struct Unadmitted;

/// The API.
#[derive(Debug)]
pub struct RegistrationApi {
    /// Whose backends register.
    pub edge: Arc<Edge>,
    /// When each backend was last heard of.
    pub registry: Arc<Registry>,
    /// Which addresses may register.
    pub rules: AddressRules,
    /// Who may ask.
    pub admission: Arc<dyn Admission>,
}

/// A reply that is not the one that was asked for.
struct RegistrationRefused(StatusCode, String);

type RegistrationAnswer = Result<(StatusCode, Value), RegistrationRefused>;

impl Handle for RegistrationApi {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(self.serve(request, peer))
    }
}

impl RegistrationApi {
    async fn serve(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let (head, body) = request.into_parts();
        let (route, answer) = self.answer(&head, body, peer.address.ip().to_canonical()).await;
        // Invariant: there are fewer templates than a byte counts.
        let route = Route::new(u8::try_from(route).unwrap_or(0));
        match answer {
            Ok((status, value)) => {
                let mut response = Response::new(Body::from(value.to_string()));
                *response.status_mut() = status;
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                Reply::new(route, response)
            }
            Err(RegistrationRefused(status, reason)) => {
                let mut reply = Reply::refusal(status, reason);
                reply.route = route;
                reply
            }
        }
    }
}

impl RegistrationApi {
    /// Which of [`TEMPLATES`] it is, and what is answered.
    async fn answer(&self, head: &Parts, body: RequestBody, from: IpAddr) -> (usize, RegistrationAnswer) {
        let path = head.uri.path();
        let below =
            |prefix| path.strip_prefix(prefix).filter(|id: &&str| !id.is_empty() && !id.contains('/'));
        match (&head.method, path) {
            (&Method::GET, "/health") => (1, Ok((StatusCode::OK, self.health()))),
            (&Method::POST, "/api/v1/register") => (2, self.register(head, body, from).await),
            (&Method::GET, "/api/v1/backends") => (4, self.list(head)),
            (method, _) => match (method, below("/api/v1/heartbeat/"), below("/api/v1/backends/")) {
                (&Method::POST, Some(id), _) => (3, self.heartbeat(head, id)),
                (&Method::GET, _, Some(id)) => (5, self.read(head, id)),
                (&Method::DELETE, _, Some(id)) => (5, self.remove(head, id, from).await),
                _ => (
                    0,
                    Err(RegistrationRefused(StatusCode::NOT_FOUND, format!("there is no {method} {path}"))),
                ),
            },
        }
    }

    fn health(&self) -> Value {
        let count = self.edge.registered().len();
        json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "registered_backends": count })
    }

    /// The name of the author, if the request may pass.
    fn admit(&self, head: &Parts, changes: bool) -> Result<Arc<str>, RegistrationRefused> {
        let given = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let secret = given.and_then(|field| {
            let (scheme, secret) = field.split_at_checked(b"Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| secret.trim_ascii())
        });
        match self.admission.admit(changes, secret) {
            Ok(Some(name)) => Ok(name),
            Ok(None) => expect_no_page(head).map(|()| "local".into()),
            Err(unadmitted) => Err(RegistrationRefused(StatusCode::UNAUTHORIZED, unadmitted.to_string())),
        }
    }

    async fn register(&self, head: &Parts, body: RequestBody, from: IpAddr) -> RegistrationAnswer {
        let by = By { name: self.admit(head, true)?, from: Some(from) };
        let is_json = head.headers.get(CONTENT_TYPE).is_some_and(|value| {
            value
                .as_bytes()
                .split(|byte| *byte == b';')
                .next()
                .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/json"))
        });
        if !is_json {
            let reason = "a registration is JSON: content-type: application/json".to_owned();
            return Err(RegistrationRefused(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        let bytes = body
            .bytes(MAX_BODY)
            .await
            .map_err(|error| RegistrationRefused(error.status(), error.to_string()))?;
        let UniqueJson(value) = read(&bytes).map_err(|error| {
            RegistrationRefused(StatusCode::BAD_REQUEST, format!("the body is no JSON object: {error}"))
        })?;
        let (id, document) = self.document(&value).map_err(|mistakes| unprocessable(&mistakes))?;
        self.registry.register(&id, document, &by).await.map_err(|error| match error {
            StoreError::Refused(mistakes) => unprocessable(&mistakes),
            StoreError::Unavailable(reason) => RegistrationRefused(StatusCode::SERVICE_UNAVAILABLE, reason),
        })?;
        let message = self.outlook(&id);
        Ok((StatusCode::CREATED, json!({ "id": id, "registered": true, "message": message })))
    }

    /// What a backend that has registered can expect.
    fn outlook(&self, id: &str) -> String {
        let registered = self.edge.registered();
        let Some(config) = registered.iter().map(|it| &it.config).find(|it| &*it.name == id) else {
            return "registered".to_owned();
        };
        if config.weight == 0 {
            return "registered; it gets no connections while its weight is 0".to_owned();
        }
        if !self.edge.serves(&config.app) {
            return format!(
                "registered; no listener of this edge is for the app {:?}, so it gets connections from none of them (an \
                 upstream of the gateway with this app, or another node, may use it)",
                config.app
            );
        }
        "registered; it gets connections from now on".to_owned()
    }

    /// The document that a registration is stored as.
    fn document(&self, value: &Value) -> Result<(String, Value), Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, "", &KEYS)?;
        let id = reader.name("id").map(str::to_owned);
        let app = reader.name("app");
        let ip = self.rules.read(&mut reader, "ip");
        let port = reader.required("port", 1, 65_535, None);
        let (Some(id), Some(app), Some(ip), Some(port)) = (id, app, ip, port) else {
            return Err(reader.mistakes);
        };
        let port = u16::try_from(port).unwrap_or_default();
        let mut document = json!({
            "name": id, "app": app, "address": SocketAddr::new(ip, port).to_string(), "weight": 2,
        });
        for field in ["region", "country", "weight", "soft_limit", "hard_limit", "check"] {
            if let Some(value) = reader.field(field) {
                document[field] = value.clone();
            }
        }
        match BackendConfig::read(&document, "") {
            Ok(backend) if self.edge.is_own(&backend.target) => reader.mistake(
                "port",
                format!(
                    "is {port}, and this edge listens at {}: connections would go in circles",
                    backend.target
                ),
                "the address of the backend itself",
            ),
            Ok(_) => {}
            Err(mistakes) => reader.mistakes.extend(mistakes),
        }
        if !reader.mistakes.is_empty() {
            return Err(reader.mistakes);
        }
        Ok((id, document))
    }

    fn heartbeat(&self, head: &Parts, id: &str) -> RegistrationAnswer {
        self.admit(head, true)?;
        if self.registry.heartbeat(id) {
            Ok((StatusCode::OK, json!({ "id": id, "status": "ok" })))
        } else {
            Err(unknown(id))
        }
    }

    fn list(&self, head: &Parts) -> RegistrationAnswer {
        self.admit(head, false)?;
        let backends: Vec<Value> =
            self.edge.registered().iter().map(|it| self.registry.describe(it)).collect();
        Ok((StatusCode::OK, json!({ "total": backends.len(), "backends": backends })))
    }

    fn read(&self, head: &Parts, id: &str) -> RegistrationAnswer {
        self.admit(head, false)?;
        let found = self.edge.registered().into_iter().find(|it| &*it.config.name == id);
        found.map(|it| (StatusCode::OK, self.registry.describe(&it))).ok_or_else(|| unknown(id))
    }

    async fn remove(&self, head: &Parts, id: &str, from: IpAddr) -> RegistrationAnswer {
        let by = By { name: self.admit(head, true)?, from: Some(from) };
        if !self.edge.registered().iter().any(|it| &*it.config.name == id) {
            return Err(unknown(id));
        }
        let removed = self.registry.remove(id, &by).await;
        removed.map_err(|error| RegistrationRefused(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
        Ok((StatusCode::OK, json!({ "id": id, "removed": true })))
    }
}

/// Where no token is demanded, only what a page of the web cannot have sent: no origin, and this machine's own name
/// or an address as the host, so that no name of somebody else's leads here.
fn expect_no_page(head: &Parts) -> Result<(), RegistrationRefused> {
    let host = head.headers.get(HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
    let is_port = |rest: &str| rest.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_ok());
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(_, rest)| rest.is_empty() || rest.starts_with(':')),
        None => Some(host.split_at(host.find(':').unwrap_or(host.len()))),
    };
    let bare = bare.filter(|(_, rest)| is_port(rest)).map(|(bare, _)| bare);
    let is_own =
        bare.is_some_and(|bare| bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok());
    if head.headers.contains_key(ORIGIN) || !is_own {
        let reason = "without a token, requests of web pages and under other names are refused".to_owned();
        return Err(RegistrationRefused(StatusCode::FORBIDDEN, reason));
    }
    Ok(())
}

fn unknown(id: &str) -> RegistrationRefused {
    RegistrationRefused(StatusCode::NOT_FOUND, format!("no backend is registered as {id:?}: register it"))
}

fn unprocessable(mistakes: &[Mistake]) -> RegistrationRefused {
    let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    RegistrationRefused(StatusCode::UNPROCESSABLE_ENTITY, said.join("; "))
}
