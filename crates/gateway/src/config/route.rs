//! `[[route]]`: which requests, and what becomes of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use serde_json::Value;
use tidegate_algorithms::breaker;
use tidegate_algorithms::document::Mistake;
use tidegate_algorithms::time::SECOND;

use crate::forwarding::fields::FieldEdits;
use crate::routes::cors::{Cors, is_preflight};
use crate::routes::shed::Priority;

use super::action::{Action, StaticReply};
use super::auth::{Auth, auth, skip_auth_preflight};
use super::fixed::{fallback, static_reply};
use super::jwt::{JwtKeysFrom, JwtKeysUrl};
use super::matches::{HostPattern, PathPattern, cookies, hosts, methods, path, query};
use super::options::{Maintenance, cors, maintenance, priority};
use super::pairs::field_pairs;
use super::part::KeyReader;
use super::redirect::redirect;
use super::rewrite::{Slashes, rewrite, slashes};
use super::route_keys::{MAX_BODY, ROUTE_KEYS};
use super::servers::Source;
use super::split::{MirrorConfig, SplitConfig, second_upstreams, split};
use super::upstream::breaker_settings;

/// What a route does; one of them.
const ACTIONS: [&str; 4] = ["upstream", "split", "redirect", "respond"];

/// The bounds of a route that states none.
const FIRST_BYTE_TIMEOUT: u64 = 30 * SECOND;
const IDLE_TIMEOUT: u64 = 60 * SECOND;
const UPGRADE_IDLE_TIMEOUT: u64 = 3_600 * SECOND;

/// A route as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// Its name.
    pub name: Arc<str>,
    /// Hosts that it is for; empty: all.
    pub hosts: Vec<HostPattern>,
    /// Paths that it is for.
    pub path: PathPattern,
    /// Methods that it is for; empty: all.
    pub methods: Vec<Method>,
    /// Request fields that must have these values.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// Cookies that must have these values.
    pub cookies: Vec<(Box<str>, Box<str>)>,
    /// Query parameters that must have these values, decoded.
    pub query: Vec<(Box<str>, Box<str>)>,
    /// What becomes of a request.
    pub action: Action,
    /// The credential that a request needs.
    pub auth: Option<Auth>,
    /// Whether preflights, which browsers send without credentials, pass to the servers without any.
    pub skip_auth_preflight: bool,
    /// Limits that a request is charged under.
    pub policies: Vec<Arc<str>>,
    /// What is taken off the front of the path before it is forwarded.
    pub strip_prefix: Box<str>,
    /// What is put in front of the path before it is forwarded.
    pub add_prefix: Box<str>,
    /// What is asked for in place of the path, query aside.
    pub replace_path: Option<Box<str>>,
    /// Which slashes of a path are left to the servers.
    pub slashes: Slashes,
    /// Which scripts in browsers may read the replies; `None`: the servers say so.
    pub cors: Option<Cors>,
    /// Whether it is out of service.
    pub maintenance: Option<Maintenance>,
    /// Changes to the request's fields.
    pub request_fields: FieldEdits,
    /// Changes to the reply's fields.
    pub response_fields: FieldEdits,
    /// Most bytes of a request's fields, names and values.
    pub max_header_bytes: Option<usize>,
    /// Most bytes of a request's body.
    pub max_body_bytes: u64,
    /// Longest wait for a reply's head, from when the request was sent.
    pub first_byte_timeout: Duration,
    /// Longest wait for more of a reply's body.
    pub idle_timeout: Duration,
    /// Longest that everything up to a reply's head may take, all attempts included.
    pub timeout: Option<Duration>,
    /// Longest that a whole reply may take, from when the request came to the reply's last byte.
    pub reply_timeout: Option<Duration>,
    /// Protocols in which a connection may go on, in lower case.
    pub upgrades: Vec<Box<str>>,
    /// How long both sides of such a connection may be silent.
    pub upgrade_idle_timeout: Duration,
    /// When requests are no longer forwarded.
    pub breaker: Option<breaker::Settings>,
    /// What is answered in place of the gateway's own 502, 503 and 504.
    pub fallback: Option<StaticReply>,
    /// Where requests go that its upstream gives no reply to.
    pub fallback_upstream: Option<Arc<str>>,
    /// Whether replies are compressed for clients that ask for it.
    pub compress: bool,
    /// Whether a second server is asked where the first is late.
    pub hedge: bool,
    /// How much its requests matter when this process cannot keep up.
    pub priority: Priority,
    /// Where parts of the requests go in place of the action's upstream.
    pub split: Option<SplitConfig>,
    /// Where copies of requests go.
    pub mirror: Option<MirrorConfig>,
}

impl RouteConfig {
    /// The upstreams that it names, each with the key that does.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (Cow<'static, str>, &Arc<str>)> {
        let split = self.split.as_ref();
        let first = match &self.action {
            Action::Forward { upstream } => {
                let key = split.map_or(Cow::Borrowed("upstream"), |split| split.key(split.shares.len()));
                Some((key, upstream))
            }
            Action::Redirect(_) | Action::Reply(_) => None,
        };
        let fallback = self.fallback_upstream.iter().map(|name| (Cow::Borrowed("fallback/upstream"), name));
        let authority = self.ways().iter().filter_map(|way| match way {
            Auth::Forward(forward) => Some((Cow::Borrowed("forward_auth/upstream"), &forward.upstream)),
            _ => None,
        });
        let shares = split.into_iter().flat_map(|split| {
            split.shares.iter().enumerate().map(move |(at, share)| (split.key(at), &share.upstream))
        });
        let mirror = self.mirror.iter().map(|mirror| (Cow::Borrowed("mirror/upstream"), &mirror.upstream));
        first.into_iter().chain(fallback).chain(authority).chain(shares).chain(mirror)
    }

    /// Whether a request without a body is a preflight that passes without credentials.
    pub(crate) fn passes_preflight(&self, request: &Parts) -> bool {
        self.skip_auth_preflight && is_preflight(request)
    }

    /// Where the keys of its tokens are fetched from, if they are.
    pub(crate) fn keys_url(&self) -> Option<&Arc<JwtKeysUrl>> {
        self.ways().iter().find_map(|way| match way {
            Auth::Jwt(jwt) => match &jwt.keys {
                JwtKeysFrom::Url(url) => Some(url),
                JwtKeysFrom::File(_) => None,
            },
            _ => None,
        })
    }

    /// The ways in which a request may prove whose it is; none if it needs not.
    #[must_use]
    pub fn ways(&self) -> &[Auth] {
        self.auth.as_ref().map(Auth::ways).unwrap_or_default()
    }
}

/// Reads a route.
///
/// # Errors
/// Every mistake found.
pub(crate) fn read(value: &Value, pointer: &str, source: Source) -> Result<RouteConfig, Vec<Mistake>> {
    let mut reader = KeyReader::new(value, pointer, ROUTE_KEYS)?;
    let name = reader.name("name").unwrap_or_default();
    let (hosts, path, methods) = (hosts(&mut reader), path(&mut reader), methods(&mut reader));
    let (fields, cookies, query) =
        (field_pairs(&mut reader, "header"), cookies(&mut reader), query(&mut reader));
    let (action, split) = action(&mut reader);
    let (auth, [compress, hedge]) = (auth(&mut reader, source), flags(&mut reader));
    let skip_auth_preflight = skip_auth_preflight(&mut reader);
    let policies = reader.texts("policies").into_iter().map(Arc::from).collect();
    let ([strip_prefix, add_prefix], replace_path) = rewrite(&mut reader, &path);
    let (slashes, upgrades) = (slashes(&mut reader, auth.as_ref()), upgrades(&mut reader));
    let cors = reader.part("cors", cors);
    let maintenance = reader.part("maintenance", maintenance).flatten();
    let max_header_bytes = reader.number("max_header_bytes");
    let [request_fields, response_fields] =
        ["request_fields", "response_fields"].map(|key| reader.part(key, edits).unwrap_or_default());
    let max_body_bytes = reader.number("max_body_bytes").unwrap_or(MAX_BODY);
    let first_byte = reader.seconds("first_byte_timeout_seconds").unwrap_or(FIRST_BYTE_TIMEOUT);
    let idle = reader.seconds("idle_timeout_seconds").unwrap_or(IDLE_TIMEOUT);
    let [timeout, reply_timeout] =
        ["timeout_seconds", "reply_timeout_seconds"].map(|key| reader.seconds(key));
    let upgrade_idle = upgrade_idle(&mut reader);
    let breaker = reader.part("breaker", breaker_settings).flatten();
    let fallback = reader.part("fallback", |it| fallback(it, &action, &split));
    let (fallback_upstream, fallback) = fallback.unwrap_or_default();
    let priority = priority(&mut reader);
    let (canary, mirror) = second_upstreams(&mut reader, &action, &split);
    match action {
        Some(action) if reader.mistakes.is_empty() => Ok(RouteConfig {
            name: Arc::from(name),
            hosts,
            path,
            methods,
            fields,
            cookies,
            query,
            action,
            auth,
            skip_auth_preflight,
            policies,
            strip_prefix,
            add_prefix,
            replace_path,
            slashes,
            cors,
            maintenance,
            request_fields,
            response_fields,
            max_header_bytes: max_header_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
            max_body_bytes,
            first_byte_timeout: Duration::from_nanos(first_byte),
            idle_timeout: Duration::from_nanos(idle),
            timeout: timeout.map(Duration::from_nanos),
            reply_timeout: reply_timeout.map(Duration::from_nanos),
            upgrades,
            upgrade_idle_timeout: Duration::from_nanos(upgrade_idle),
            breaker,
            fallback,
            fallback_upstream,
            split: split.or(canary),
            mirror,
            compress,
            hedge,
            priority,
        }),
        _ => Err(std::mem::take(&mut reader.mistakes)),
    }
}

/// What is done or not: `compress`, `hedge`.
fn flags(reader: &mut KeyReader<'_>) -> [bool; 2] {
    ["compress", "hedge"].map(|key| reader.flag(key).unwrap_or(false))
}

/// How long both sides may be silent in another protocol, in nanoseconds.
fn upgrade_idle(reader: &mut KeyReader<'_>) -> u64 {
    reader.seconds("upgrade_idle_timeout_seconds").unwrap_or(UPGRADE_IDLE_TIMEOUT)
}

/// The protocols that a route lets connections go on in. HTTP itself is not allowed: its requests would pass unseen.
fn upgrades(reader: &mut KeyReader<'_>) -> Vec<Box<str>> {
    if reader.field("upgrades").is_none() {
        return vec!["websocket".into()];
    }
    let mut names: Vec<Box<str>> = Vec::new();
    for (index, text) in reader.texts("upgrades").into_iter().enumerate() {
        let name = text.to_ascii_lowercase();
        let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/+".contains(&byte));
        if !is_token || name.starts_with("h2") || name.starts_with("http") || name.starts_with("tls") {
            reader.mistake(
                &format!("upgrades/{index}"),
                format!("is {text:?}"),
                "a protocol other than HTTP and TLS",
            );
        }
        names.push(name.into());
    }
    names
}

/// What becomes of a request. Of a split, the action has the last upstream.
fn action(reader: &mut KeyReader<'_>) -> (Option<Action>, Option<SplitConfig>) {
    let (last, split) = split(reader).unzip();
    let last = last.map(|upstream| Action::Forward { upstream });
    let upstream = reader.text("upstream").map(|name| Action::Forward { upstream: Arc::from(name) });
    let redirect = reader.part("redirect", redirect).flatten().map(Action::Redirect);
    let respond = reader.part("respond", |inner| static_reply(inner, 200)).map(Action::Reply);
    let mut stated = ACTIONS.into_iter().filter(|field| reader.field(field).is_some());
    let accepted = format!("one of {}", ACTIONS.join(", "));
    match (stated.next(), stated.next()) {
        (None, _) => reader.mistake("upstream", "is missing", accepted),
        (Some(first), Some(second)) => reader.mistake(second, format!("stands beside {first}"), accepted),
        (Some(_), None) => {}
    }
    (upstream.or(last).or(redirect).or(respond), split)
}

fn edits(reader: &mut KeyReader<'_>) -> FieldEdits {
    let set = field_pairs(reader, "set");
    let add = field_pairs(reader, "add");
    let mut remove = Vec::new();
    for (index, text) in reader.texts("remove").into_iter().enumerate() {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) => remove.push(name),
            Err(_) => reader.mistake(&format!("remove/{index}"), format!("is {text:?}"), "a field's name"),
        }
    }
    FieldEdits { remove, set, add }
}
