//! `[[upstream]]`: servers that do the same work, and how they are used.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_algorithms::balance::budget;
use tidegate_algorithms::balance::eligibility::EjectionSettings;
use tidegate_algorithms::breaker::{self, MAX_CALLS, Window};
use tidegate_algorithms::document::{DocumentReader, Mistake, is_name};
use tidegate_algorithms::overload::gradient;
use tidegate_algorithms::time::SECOND;
use tidegate_upstream::group::{Balance, GroupSettings};
use tidegate_upstream::tls::TlsClient;

use super::check::{CHECK_KEYS, CheckConfig, check};
use super::part::{DAY, MANY, limit, part};
use super::servers::{Protocol, ServerConfig, Source, servers, sources, tls};

const KEYS: [&str; 19] = [
    "name",
    "servers",
    "app",
    "protocol",
    "tls",
    "balance",
    "hash_by",
    "slow_start_seconds",
    "eject_after",
    "eject_seconds",
    "check",
    "breaker",
    "retries",
    "connect_timeout_seconds",
    "sources",
    "idle_connections",
    "idle_timeout_seconds",
    "max_requests",
    "adaptive_concurrency",
];
const ADAPTIVE_KEYS: [&str; 4] = ["enabled", "mode", "min", "max"];
/// The keys of a breaker, an upstream's or a route's.
pub(super) const BREAKER_KEYS: [&str; 10] = [
    "calls",
    "seconds",
    "minimum_calls",
    "failure_percent",
    "slow_percent",
    "slow_seconds",
    "first_open_seconds",
    "open_seconds",
    "trials",
    "enabled",
];
const RETRY_KEYS: [&str; 3] = ["attempts", "percent", "least_per_second"];

/// An upstream as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// Its name.
    pub name: Arc<str>,
    /// Its servers, at least one unless they register themselves.
    pub servers: Vec<ServerConfig>,
    /// The app whose registered backends are its servers, too.
    pub registered: Option<RegisteredServers>,
    /// What is spoken with them.
    pub protocol: Protocol,
    /// Whom those of `https://` must prove to be; `None`: there are none.
    pub tls: Option<TlsClient>,
    /// How one of them is chosen.
    pub group: GroupSettings,
    /// What [`Balance::RingHash`] goes by.
    pub key: BalanceKey,
    /// How servers are checked, if they are.
    pub check: Option<CheckConfig>,
    /// When requests are no longer sent there; `None`: always are.
    pub breaker: Option<breaker::Settings>,
    /// Its limit of attempts under way; `None`: there is none.
    pub(crate) adaptive: Option<AdaptiveConfig>,
    /// How often a request is tried.
    pub retries: RetryConfig,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Addresses of this machine that connections begin at, each in turn; none: any.
    pub sources: Vec<IpAddr>,
    /// Most idle connections to each server that a core keeps.
    pub idle_connections: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// A limit of attempts under way that is found by how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdaptiveConfig {
    /// Between what it is looked for.
    pub(crate) bounds: gradient::GradientSettings,
    /// Whether what it has no room for is counted alone, and not refused.
    pub(crate) is_shadow: bool,
}

/// Servers that register themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredServers {
    /// What they say that they serve.
    pub app: Arc<str>,
    /// Most requests at one that states nothing.
    pub max_requests: u32,
}

/// What a hash ring goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceKey {
    /// The client's address.
    #[default]
    Address,
    /// The value of a request field; requests without it go by the client's address.
    Field(http::HeaderName),
}

/// How often a request is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Most attempts per request, the first one included.
    pub attempts: u32,
    /// What all requests together may spend on further attempts.
    pub budget: budget::BudgetSettings,
}

/// Reads an upstream.
///
/// # Errors
/// Every mistake found.
pub(crate) fn read(value: &Value, pointer: &str, source: Source) -> Result<UpstreamConfig, Vec<Mistake>> {
    let mut reader = DocumentReader::new(value, pointer, &KEYS)?;
    let name = reader.name("name").unwrap_or_default();
    let most_requests = limit(reader.number("max_requests", 1, MANY)).unwrap_or(10_000);
    let app = app(&mut reader);
    let registered = app.map(|app| RegisteredServers { app, max_requests: most_requests });
    let servers = servers(&mut reader, pointer, most_requests);
    let protocol = reader.choice("protocol", "\"http1\", \"http2\", \"auto\"").unwrap_or_default();
    let tls = tls(&mut reader, pointer, &servers, protocol, source);
    let balance = balance(&mut reader);
    let key = hash_by(&mut reader, balance);
    let ejection = EjectionSettings::default();
    let group = GroupSettings {
        balance,
        slow_start: reader.seconds("slow_start_seconds", 0.0, DAY).unwrap_or(0),
        ejection: EjectionSettings {
            failures: limit(reader.number("eject_after", 0, MANY)).unwrap_or(ejection.failures),
            base: reader.seconds("eject_seconds", 0.001, DAY).unwrap_or(ejection.base),
            ..ejection
        },
        ..GroupSettings::default()
    };
    let check = part(&mut reader, "check", &CHECK_KEYS, pointer, |inner| check(inner, protocol));
    let breaker = part(&mut reader, "breaker", &BREAKER_KEYS, pointer, breaker_settings)
        .unwrap_or(Some(breaker::Settings::default()));
    let adaptive = part(&mut reader, "adaptive_concurrency", &ADAPTIVE_KEYS, pointer, adaptive).flatten();
    let retries = part(&mut reader, "retries", &RETRY_KEYS, pointer, retries).unwrap_or_default();
    let connect_timeout = reader.seconds("connect_timeout_seconds", 0.001, DAY).unwrap_or(SECOND);
    let sources = sources(&mut reader, &servers);
    let idle_connections = reader.number("idle_connections", 0, MANY).unwrap_or(1_024);
    let idle_timeout = reader.seconds("idle_timeout_seconds", 0.001, DAY).unwrap_or(30 * SECOND);
    if !reader.mistakes.is_empty() {
        return Err(reader.mistakes);
    }
    Ok(UpstreamConfig {
        name: Arc::from(name),
        servers,
        registered,
        protocol,
        tls,
        group,
        key,
        check,
        breaker,
        adaptive,
        retries,
        connect_timeout: Duration::from_nanos(connect_timeout),
        sources,
        idle_connections: usize::try_from(idle_connections).unwrap_or(usize::MAX),
        idle_timeout: Duration::from_nanos(idle_timeout),
    })
}

fn app(reader: &mut DocumentReader<'_>) -> Option<Arc<str>> {
    let app = reader.text("app", 1, 64)?;
    if !is_name(app) {
        reader.mistake(
            "app",
            format!("is {app:?}"),
            "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter",
        );
    }
    Some(app.into())
}

fn balance(reader: &mut DocumentReader<'_>) -> Balance {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum BalanceWord {
        RoundRobin,
        LeastRequests,
        PeakEwma,
        RingHash,
    }
    let accepted = "\"round_robin\", \"least_requests\", \"peak_ewma\", \"ring_hash\"";
    match reader.choice("balance", accepted) {
        Some(BalanceWord::RoundRobin) => Balance::RoundRobin,
        Some(BalanceWord::LeastRequests) | None => Balance::LeastRequests,
        Some(BalanceWord::PeakEwma) => Balance::PeakEwma,
        Some(BalanceWord::RingHash) => Balance::RingHash,
    }
}

fn hash_by(reader: &mut DocumentReader<'_>, balance: Balance) -> BalanceKey {
    let accepted = "\"address\", or \"header:NAME\"";
    let Some(text) = reader.text("hash_by", 1, 256) else { return BalanceKey::Address };
    if balance != Balance::RingHash {
        reader.mistake("hash_by", "has no effect", "balance = \"ring_hash\" beside it");
    }
    if text == "address" {
        return BalanceKey::Address;
    }
    match text.strip_prefix("header:").and_then(|name| name.parse().ok()) {
        Some(name) => BalanceKey::Field(name),
        None => {
            reader.mistake("hash_by", format!("is {text:?}"), accepted);
            BalanceKey::Address
        }
    }
}

/// A breaker's settings; `None` if it is switched off.
pub(super) fn breaker_settings(reader: &mut DocumentReader<'_>) -> Option<breaker::Settings> {
    let base = breaker::Settings::default();
    let enabled = reader.flag("enabled").unwrap_or(true);
    let calls = limit(reader.number("calls", 1, MAX_CALLS.into()));
    let seconds = reader.seconds("seconds", 0.001, DAY);
    if calls.is_some() && seconds.is_some() {
        reader.mistake("seconds", "stands beside calls", "one of the two");
    }
    let window = match (calls, seconds) {
        (Some(calls), _) => Window::Calls(calls),
        (None, Some(span)) => Window::Span(span),
        (None, None) => base.window,
    };
    let percent = |number: Option<u64>, otherwise: u32| limit(number).unwrap_or(otherwise);
    let pause = reader.seconds("open_seconds", 0.001, DAY).unwrap_or(base.pause);
    let first_pause = reader.seconds("first_open_seconds", 0.001, DAY);
    if first_pause.is_some_and(|first| first > pause) {
        reader.mistake("first_open_seconds", "is above open_seconds", "at most open_seconds");
    }
    let settings = breaker::Settings {
        window,
        minimum_calls: limit(reader.number("minimum_calls", 1, MAX_CALLS.into()))
            .unwrap_or(base.minimum_calls),
        minimum_failures: 0,
        failure_percent: percent(reader.number("failure_percent", 1, 100), base.failure_percent),
        slow_after: reader.seconds("slow_seconds", 0.001, DAY).unwrap_or(base.slow_after),
        slow_percent: percent(reader.number("slow_percent", 1, 100), base.slow_percent),
        first_pause: first_pause.unwrap_or(base.first_pause).min(pause),
        pause,
        trials: limit(reader.number("trials", 1, 1_000)).unwrap_or(base.trials),
    };
    enabled.then_some(settings)
}

/// An adaptive limit; `None` if it is switched off.
fn adaptive(reader: &mut DocumentReader<'_>) -> Option<AdaptiveConfig> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum AdaptiveMode {
        Enforce,
        Shadow,
    }
    let base = gradient::GradientSettings::default();
    let enabled = reader.flag("enabled").unwrap_or(true);
    let mode = reader.choice("mode", "\"enforce\", \"shadow\"").unwrap_or(AdaptiveMode::Enforce);
    let is_shadow = matches!(mode, AdaptiveMode::Shadow);
    let least = limit(reader.number("min", 1, MANY));
    let most = limit(reader.number("max", 1, MANY));
    let bounds = gradient::GradientSettings {
        least: least.unwrap_or(base.least.min(most.unwrap_or(base.most))),
        most: most.unwrap_or(base.most.max(least.unwrap_or(base.least))),
    };
    if bounds.least > bounds.most {
        reader.mistake("min", format!("is {}, above max", bounds.least), "at most max");
    }
    enabled.then_some(AdaptiveConfig { bounds, is_shadow })
}

fn retries(reader: &mut DocumentReader<'_>) -> RetryConfig {
    let base = RetryConfig::default();
    RetryConfig {
        attempts: limit(reader.number("attempts", 1, 10)).unwrap_or(base.attempts),
        budget: budget::BudgetSettings {
            percent: limit(reader.number("percent", 0, 100)).unwrap_or(base.budget.percent),
            least_per_second: limit(reader.number("least_per_second", 0, MANY))
                .unwrap_or(base.budget.least_per_second),
        },
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { attempts: 3, budget: budget::BudgetSettings::default() }
    }
}
