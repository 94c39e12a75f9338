//! `[[upstream]]`: servers that do the same work, and how they are used.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_algorithms::balance::budget;
use tidegate_algorithms::balance::eligibility::EjectionSettings;
use tidegate_algorithms::breaker::{self, Window};
use tidegate_algorithms::document::{Mistake, is_name};
use tidegate_algorithms::overload::gradient;
use tidegate_algorithms::time::SECOND;
use tidegate_upstream::group::{Balance, GroupSettings};
use tidegate_upstream::tls::TlsClient;

use super::check::{CheckConfig, check};
use super::part::KeyReader;
use super::servers::{Protocol, ServerConfig, Source, servers, sources, tls};
use super::upstream_keys::UPSTREAM_KEYS;

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
    let mut reader = KeyReader::new(value, pointer, UPSTREAM_KEYS)?;
    let name = reader.name("name").unwrap_or_default();
    let most_requests = reader.limit("max_requests").unwrap_or(10_000);
    let app = app(&mut reader);
    let registered = app.map(|app| RegisteredServers { app, max_requests: most_requests });
    let servers = servers(&mut reader, most_requests);
    let protocol = reader.choice("protocol").unwrap_or_default();
    let tls = tls(&mut reader, &servers, protocol, source);
    let balance = balance(&mut reader);
    let key = hash_by(&mut reader, balance);
    let ejection = EjectionSettings::default();
    let group = GroupSettings {
        balance,
        slow_start: reader.seconds("slow_start_seconds").unwrap_or(0),
        ejection: EjectionSettings {
            failures: reader.limit("eject_after").unwrap_or(ejection.failures),
            base: reader.seconds("eject_seconds").unwrap_or(ejection.base),
            ..ejection
        },
        ..GroupSettings::default()
    };
    let check = reader.part("check", |inner| check(inner, protocol));
    let breaker = reader.part("breaker", breaker_settings).unwrap_or(Some(breaker::Settings::default()));
    let adaptive = reader.part("adaptive_concurrency", adaptive).flatten();
    let retries = reader.part("retries", retries).unwrap_or_default();
    let connect_timeout = reader.seconds("connect_timeout_seconds").unwrap_or(SECOND);
    let sources = sources(&mut reader, &servers);
    let idle_connections = reader.number("idle_connections").unwrap_or(1_024);
    let idle_timeout = reader.seconds("idle_timeout_seconds").unwrap_or(30 * SECOND);
    if !reader.mistakes.is_empty() {
        return Err(std::mem::take(&mut reader.mistakes));
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

fn app(reader: &mut KeyReader<'_>) -> Option<Arc<str>> {
    let app = reader.text("app")?;
    if !is_name(app) {
        reader.mistake(
            "app",
            format!("is {app:?}"),
            "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter",
        );
    }
    Some(app.into())
}

fn balance(reader: &mut KeyReader<'_>) -> Balance {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum BalanceWord {
        RoundRobin,
        LeastRequests,
        PeakEwma,
        RingHash,
    }
    match reader.choice("balance") {
        Some(BalanceWord::RoundRobin) => Balance::RoundRobin,
        Some(BalanceWord::LeastRequests) | None => Balance::LeastRequests,
        Some(BalanceWord::PeakEwma) => Balance::PeakEwma,
        Some(BalanceWord::RingHash) => Balance::RingHash,
    }
}

fn hash_by(reader: &mut KeyReader<'_>, balance: Balance) -> BalanceKey {
    let accepted = "\"address\", or \"header:NAME\"";
    let Some(text) = reader.text("hash_by") else { return BalanceKey::Address };
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
pub(super) fn breaker_settings(reader: &mut KeyReader<'_>) -> Option<breaker::Settings> {
    let base = breaker::Settings::default();
    let enabled = reader.flag("enabled").unwrap_or(true);
    let calls = reader.limit("calls");
    let seconds = reader.seconds("seconds");
    if calls.is_some() && seconds.is_some() {
        reader.mistake("seconds", "stands beside calls", "one of the two");
    }
    let window = match (calls, seconds) {
        (Some(calls), _) => Window::Calls(calls),
        (None, Some(span)) => Window::Span(span),
        (None, None) => base.window,
    };
    let pause = reader.seconds("open_seconds").unwrap_or(base.pause);
    let first_pause = reader.seconds("first_open_seconds");
    if first_pause.is_some_and(|first| first > pause) {
        reader.mistake("first_open_seconds", "is above open_seconds", "at most open_seconds");
    }
    let settings = breaker::Settings {
        window,
        minimum_calls: reader.limit("minimum_calls").unwrap_or(base.minimum_calls),
        minimum_failures: 0,
        failure_percent: reader.limit("failure_percent").unwrap_or(base.failure_percent),
        slow_after: reader.seconds("slow_seconds").unwrap_or(base.slow_after),
        slow_percent: reader.limit("slow_percent").unwrap_or(base.slow_percent),
        first_pause: first_pause.unwrap_or(base.first_pause).min(pause),
        pause,
        trials: reader.limit("trials").unwrap_or(base.trials),
    };
    enabled.then_some(settings)
}

/// An adaptive limit; `None` if it is switched off.
fn adaptive(reader: &mut KeyReader<'_>) -> Option<AdaptiveConfig> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum AdaptiveMode {
        Enforce,
        Shadow,
    }
    let base = gradient::GradientSettings::default();
    let enabled = reader.flag("enabled").unwrap_or(true);
    let mode = reader.choice("mode").unwrap_or(AdaptiveMode::Enforce);
    let is_shadow = matches!(mode, AdaptiveMode::Shadow);
    let least = reader.limit("min");
    let most = reader.limit("max");
    let bounds = gradient::GradientSettings {
        least: least.unwrap_or(base.least.min(most.unwrap_or(base.most))),
        most: most.unwrap_or(base.most.max(least.unwrap_or(base.least))),
    };
    if bounds.least > bounds.most {
        reader.mistake("min", format!("is {}, above max", bounds.least), "at most max");
    }
    enabled.then_some(AdaptiveConfig { bounds, is_shadow })
}

fn retries(reader: &mut KeyReader<'_>) -> RetryConfig {
    let base = RetryConfig::default();
    RetryConfig {
        attempts: reader.limit("attempts").unwrap_or(base.attempts),
        budget: budget::BudgetSettings {
            percent: reader.limit("percent").unwrap_or(base.budget.percent),
            least_per_second: reader.limit("least_per_second").unwrap_or(base.budget.least_per_second),
        },
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { attempts: 3, budget: budget::BudgetSettings::default() }
    }
}
