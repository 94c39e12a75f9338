//! The part of a request that all protocols share: its client, its body, and keeping its lines.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts as Head;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Response, header};
use tidegate_log::{self as log, Durability, Log};
use tidegate_net::clock::{Clock, monotonic, wall};
use tidegate_net::drain::Drain;
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::metrics::{LineWriter, Lines};

use crate::access::{Access, Right};
use crate::alerts::Alerts;
use crate::body::Encoding;
use crate::client::{Client, secret};
use crate::counters::{Counters, Protocol};
use crate::kept::Kept;
use crate::limits::{BatchLimiter, LimitedBatch};
use crate::partitioning::{PartitionBy, parts};
use crate::readers::Readers;
use crate::refusal::Refusal;
use crate::repeats::{Begun, MAX_KEY_BYTES, Repeatable, Repeats};
use crate::series::ClientSeries;
use crate::settings::IntakeSettings;

/// Bytes of lines that a batch may make, for each byte that a body may have.
const LINES_PER_BODY: usize = 4;

/// Answers with the intake's numbers as Prometheus reads them, in the form that the request's fields ask for.
pub type Page = Box<dyn Fn(&HeaderMap) -> Response<Body> + Send + Sync>;

/// What an intake is made of.
pub struct Parts {
    /// Where its lines go.
    pub log: Arc<Log>,
    /// How it behaves.
    pub settings: IntakeSettings,
    /// Who may do what.
    pub access: Arc<dyn Access>,
    /// The policies that a batch is charged under.
    pub policies: Arc<[Arc<str>]>,
    /// What decides them.
    pub limits: Arc<BatchLimiter>,
    /// What it counts.
    pub counters: Arc<Counters>,
    /// Its page of numbers.
    pub page: Page,
    /// The lifecycle of its process.
    pub drain: Drain,
    /// The process's timeline.
    pub clock: Clock,
    /// What its alert rules have found, if it has any.
    pub alerts: Option<Arc<Alerts>>,
    /// The series of each client.
    pub series: Arc<ClientSeries>,
}

/// An intake; every protocol stands on it.
pub struct Intake {
    pub(crate) parts: Parts,
    pub(crate) readers: Readers,
    pub(crate) repeats: Repeats,
}

impl fmt::Debug for Intake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Intake").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

impl Intake {
    /// An intake.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let repeats = Repeats::new(parts.settings.repeat_window, Arc::clone(&parts.counters));
        Self { parts, readers: Readers::default(), repeats }
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.parts.counters
    }

    /// What its alert rules have found, if it has any.
    #[must_use]
    pub fn alerts(&self) -> Option<&Arc<Alerts>> {
        self.parts.alerts.as_ref()
    }

    /// The series of each client.
    #[must_use]
    pub fn series(&self) -> &Arc<ClientSeries> {
        &self.parts.series
    }

    /// The process's timeline.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.parts.clock
    }

    /// The lifecycle of its process.
    #[must_use]
    pub fn drain(&self) -> Drain {
        self.parts.drain.clone()
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.parts.log
    }

    /// Admits a request, and returns its client.
    pub(crate) fn admit(&self, head: &Head, peer: &Peer, right: Right) -> Result<Client, Refusal> {
        let Parts { access, settings, .. } = &self.parts;
        let token = access.admit(right, secret(head).as_deref())?;
        if token.is_none() && is_from_a_page(head, peer, right) {
            return Err(Refusal::Foreign);
        }
        Ok(Client::of(token, settings.client_field.as_ref(), head, peer.address.ip()))
    }

    /// The body of a request, without its compression, and the name of its batch if it may be sent again.
    pub(crate) async fn body(
        &self,
        head: &Head,
        client: &Client,
        body: RequestBody,
        repeats: Repeated,
    ) -> Result<(Bytes, Option<Repeatable>), Refusal> {
        let limit = self.parts.settings.body_bytes;
        let encoding = Encoding::of(&head.headers)?;
        let key = only(head.headers.get_all(KEY).iter(), "idempotency-key")?.map(HeaderValue::as_bytes);
        if key.is_some_and(|key| !(1..=MAX_KEY_BYTES).contains(&key.len())) {
            return Err(Refusal::Malformed(format!("idempotency-key must have 1 to {MAX_KEY_BYTES} bytes")));
        }
        let body = body.bytes(limit).await?;
        let is_named = key.is_some() || repeats == Repeated::ByItsBytes;
        let name = || self.repeats.name(&client.name, head.uri.path(), key, &body);
        let name = is_named.then(name);
        Ok((encoding.decode(body, limit)?, name))
    }

    /// How safe a request wants its lines: `?ack=`, the field `tidegate-ack`, or as it is configured.
    pub(crate) fn wanted(&self, head: &Head) -> Result<Durability, Refusal> {
        Ok(stated(head)?.unwrap_or(self.parts.settings.acknowledge))
    }

    /// A writer for the lines of `client`, whose request has just come.
    pub(crate) fn writer(&self, client: &Client) -> LineWriter {
        let series = self.parts.series.of(&client.name);
        let settings = &self.parts.settings;
        LineWriter::new(&client.name, millis(), LINES_PER_BODY * settings.body_bytes)
            .limited(series)
            .with_series(settings.partition_by == PartitionBy::Series)
    }

    /// Charges the client for `lines` and keeps them. A batch that was kept already is neither charged nor kept; one
    /// that was kept less safely than it is wanted now is made safer.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        protocol: Protocol,
        client: Client,
        lines: Lines,
        wanted: Durability,
        repeatable: Option<Repeatable>,
    ) -> Result<Kept, Refusal> {
        let Some(batch) = repeatable else { return self.keep_once(protocol, &client, lines, wanted).await };
        let before = match self.repeats.begin(batch, wanted, monotonic()) {
            Begun::Done(kept) => return Ok(kept),
            Begun::UnderWay => return Err(Refusal::UnderWay),
            Begun::OtherBody => return Err(Refusal::OtherBody),
            Begun::Weaker(kept) => Some(kept),
            Begun::New => None,
        };
        // A task of its own, which ends also if the client leaves: then the table knows what became of the batch.
        let intake = Arc::clone(self);
        let kept = tokio::spawn(async move {
            let kept = match before {
                Some(before) => intake.keep_safer(protocol, &client, lines, wanted, before).await,
                None => intake.keep_once(protocol, &client, lines, wanted).await,
            };
            intake.repeats.end(batch, kept.as_ref().ok().copied().or(before));
            kept
        });
        kept.await.unwrap_or(Err(Refusal::NoReader))
    }

    /// Makes a batch as safe as can be that was kept `before`. It is kept again if the disk may have lost it after it was
    /// acknowledged.
    async fn keep_safer(
        &self,
        protocol: Protocol,
        client: &Client,
        lines: Lines,
        wanted: Durability,
        before: Kept,
    ) -> Result<Kept, Refusal> {
        let log = &self.parts.log;
        log.sync(client.key()).await?;
        if log.losses() == before.losses {
            return Ok(Kept { durability: Durability::Fsync, ..before });
        }
        self.keep_once(protocol, client, lines, wanted).await
    }

    async fn keep_once(
        &self,
        protocol: Protocol,
        client: &Client,
        lines: Lines,
        wanted: Durability,
    ) -> Result<Kept, Refusal> {
        let Parts { log, policies, limits, counters, alerts, clock, settings, .. } = &self.parts;
        let count = lines.facts.len();
        if count == 0 {
            counters.count_batch(protocol, 0);
            return Ok(Kept { lines: 0, durability: wanted, losses: log.losses() });
        }
        let batch = LimitedBatch { client: &client.name, address: client.address, metrics: count as u64 };
        if policies.is_empty() {
            limits.pass(&batch);
        } else {
            let ruling = limits.charge(policies, &batch).await;
            if let Some(denial) = ruling.denial {
                return Err(Refusal::Denied(denial, Box::new(ruling.fields)));
            }
        }
        let observed = alerts.as_ref().map(|alerts| alerts.observations(&lines, millis()));
        let parts = parts(lines, settings.partition_by, client.key(), log.partitions());
        let losses = log.losses();
        let durability = match log.append_parts(parts, wanted).await {
            Ok(durability) => durability,
            Err(error) => {
                // It is charged when it is sent again, and kept.
                if !policies.is_empty() {
                    limits.refund(policies, &batch).await;
                }
                return Err(error.into());
            }
        };
        counters.count_batch(protocol, count);
        if let (Some(alerts), Some(observed)) = (alerts, observed) {
            alerts.observe(observed, clock.tick());
        }
        Ok(Kept { lines: count, durability, losses })
    }
}

/// Whether a page of some site may have sent a request that carries no token. Browsers say so of whatever changes
/// something (`Origin`). A page whose name was bound to this machine's address can read without saying so, but
/// only under that name, and not over TLS.
fn is_from_a_page(head: &Head, peer: &Peer, right: Right) -> bool {
    let is_address = || {
        let host = head.headers.get(header::HOST).map(|host| host.as_bytes());
        let host = host.or_else(|| head.uri.authority().map(|host| host.as_str().as_bytes()));
        let authority = host.and_then(|host| std::str::from_utf8(host).ok()?.parse::<Authority>().ok());
        authority.is_some_and(|authority| {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
        })
    };
    head.headers.contains_key(header::ORIGIN) || (right == Right::Read && !peer.is_tls && !is_address())
}

/// How safe a request says that it wants its lines.
fn stated(head: &Head) -> Result<Option<Durability>, Refusal> {
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let of_query = only(query.filter(|(name, _)| name == "ack"), "ack")?.map(|(_, word)| word);
    let of_field = only(head.headers.get_all(ACK).iter(), "tidegate-ack")?;
    let of_field = of_field.map(|word| String::from_utf8_lossy(word.as_bytes()));
    let Some(word) = of_query.or(of_field) else { return Ok(None) };
    let unknown = || Refusal::Malformed("ack must be memory, written or fsync".to_owned());
    durability_of_word(&word).map(Some).ok_or_else(unknown)
}

/// The only one of `stated`, if there is one. Of two, which one is meant cannot be known.
fn only<T>(mut stated: impl Iterator<Item = T>, name: &str) -> Result<Option<T>, Refusal> {
    match (stated.next(), stated.next()) {
        (only, None) => Ok(only),
        _ => Err(Refusal::Malformed(format!("{name} must be there once"))),
    }
}

/// How a batch that is sent again is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// By the key that the request has, if it has one.
    ByItsKey,
    /// By its bytes, where the request has no key.
    ByItsBytes,
}

/// The field that names a batch which may be sent again.
const KEY: http::HeaderName = http::HeaderName::from_static("idempotency-key");

/// The field in which a request asks for safety, and a reply says what it got.
pub(crate) const ACK: http::HeaderName = http::HeaderName::from_static("tidegate-ack");

fn durability_of_word(word: &str) -> Option<Durability> {
    let all = [Durability::Memory, Durability::Written, Durability::Fsync];
    all.into_iter().find(|durability| durability.word() == word)
}

/// The civil time in Unix milliseconds.
pub(crate) fn millis() -> i64 {
    i64::try_from(wall().0 / 1_000_000).unwrap_or(i64::MAX)
}

/// How the log understands this crate's lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricLines;

impl log::Describe for MetricLines {
    fn describe<'line>(&self, line: &'line [u8]) -> Option<log::Description<'line>> {
        let described = tidegate_wire::metrics::describe(line)?;
        Some(log::Description { name: described.name, ms: described.millis })
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};

    use super::*;

    fn head(target: &str, fields: &[(&str, &str)]) -> Head {
        let request = Request::post(target);
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn how_safe_is_said_once_by_the_query_or_else_by_a_field() {
        let field = ("tidegate-ack", "written");
        for (target, fields, wanted) in [
            ("/v1/metrics", &[][..], None),
            ("/v1/metrics?a=b", &[field], Some(Durability::Written)),
            ("/v1/metrics?ack=memory", &[field], Some(Durability::Memory)),
        ] {
            assert_eq!(stated(&head(target, fields)).unwrap(), wanted, "{target}");
        }
        for (target, fields) in [
            ("/v1/metrics?ack=memory&ack=fsync", &[][..]),
            ("/v1/metrics?ack=fsync&ack=fsync", &[]),
            ("/v1/metrics?ack=never", &[]),
            ("/v1/metrics", &[field, field]),
        ] {
            let refusal = stated(&head(target, fields)).unwrap_err();
            assert_eq!(refusal.status(), StatusCode::BAD_REQUEST, "{target}: {refusal}");
        }
    }

    #[test]
    fn of_two_keys_none_is_taken() {
        assert_eq!(only(["a"].iter(), "key").unwrap(), Some(&"a"));
        assert_eq!(only([""; 0].iter(), "key").unwrap(), None);
        let refusal = only(["a", "a"].iter(), "idempotency-key").unwrap_err();
        assert_eq!(refusal.status(), StatusCode::BAD_REQUEST);
        assert!(refusal.to_string().contains("idempotency-key must be there once"), "{refusal}");
    }
}
