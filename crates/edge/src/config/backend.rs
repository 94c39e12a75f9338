//! A backend: where it is, what it may carry, how it is checked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::balance::region::Country;
use tidegate_algorithms::document::{DocumentReader, Mistake, shown};
use tidegate_algorithms::time::SECOND;
use tidegate_upstream::backend::{Host, Target};

use super::{DEFAULT_APP, optional_country, optional_name};

/// The keys of a backend.
pub const BACKEND_KEYS: [&str; 12] = [
    "name",
    "app",
    "address",
    "region",
    "country",
    "weight",
    "soft_limit",
    "hard_limit",
    "priority",
    "drain",
    "slow_start_seconds",
    "check",
];
const CHECK_KEYS: [&str; 6] = ["kind", "path", "interval_seconds", "timeout_seconds", "fall", "rise"];

const ADDRESS: &str = "a host and a port, as in \"10.0.0.7:8080\", \"[::1]:8080\" or \"db.internal:5432\"";

/// What a soft limit is unless stated otherwise.
const SOFT_LIMIT: u64 = 100;
/// What a hard limit is unless stated otherwise.
const HARD_LIMIT: u64 = 150;
const MOST_CONNECTIONS: u64 = 1_000_000;

/// One backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendConfig {
    /// Its name, for explanations, metrics and the registration API.
    pub name: Arc<str>,
    /// What it serves: listeners name an app.
    pub app: Arc<str>,
    /// Where it is.
    pub target: Target,
    /// Its region.
    pub region: Option<Arc<str>>,
    /// Its country.
    pub country: Option<Country>,
    /// Its share among its like; 0: it gets nothing new.
    pub weight: u32,
    /// Connections that it is meant to have.
    pub soft_limit: u32,
    /// Connections that it may have from this node.
    pub hard_limit: u32,
    /// Used when no backend of a lower number has room.
    pub priority: u16,
    /// Whether it gets nothing new, while what it has lives on.
    pub drain: bool,
    /// How long it is given less than its share after it came up, in nanoseconds.
    pub slow_start: u64,
    /// How it is checked; `None`: it is not.
    pub check: Option<CheckConfig>,
    /// The number of the node where it registered itself, if it did; 0 where nodes share nothing.
    pub registrar: Option<u32>,
}

/// How a backend is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckConfig {
    /// What is asked.
    pub probe: Probe,
    /// From the end of one check to the next.
    pub interval: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// How many in a row change a verdict.
    pub thresholds: Thresholds,
}

/// What a check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A connection.
    Tcp,
    /// A request for a path, and a reply 2xx.
    Http(Box<str>),
    /// A handshake, whatever the certificate.
    Tls,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum CheckKind {
    Tcp,
    Http,
    Tls,
    Off,
}

impl Default for CheckConfig {
    fn default() -> Self {
        Self {
            probe: Probe::Tcp,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            thresholds: Thresholds { rise: 2, fall: 3 },
        }
    }
}

impl BackendConfig {
    /// Reads a document of which `pointer` says where it is.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &BACKEND_KEYS)?;
        let name = reader.name("name").map(Arc::from);
        let app = optional_name(&mut reader, "app").unwrap_or_else(|| DEFAULT_APP.into());
        let target = target(&mut reader);
        let region = optional_name(&mut reader, "region");
        let country = optional_country(&mut reader, "country");
        let weight = reader.number("weight", 0, 1_000).unwrap_or(1);
        let hard_limit = reader.number("hard_limit", 1, MOST_CONNECTIONS);
        let soft = reader.number("soft_limit", 1, MOST_CONNECTIONS);
        let hard_limit = hard_limit.unwrap_or_else(|| HARD_LIMIT.max(soft.unwrap_or(0)));
        let soft_limit = soft.unwrap_or_else(|| SOFT_LIMIT.min(hard_limit));
        if soft_limit > hard_limit {
            reader.mistake(
                "soft_limit",
                format!("is {soft_limit}"),
                format!("at most the hard_limit, {hard_limit}"),
            );
        }
        let priority = reader.number("priority", 0, 100).unwrap_or(0);
        let drain = reader.flag("drain").unwrap_or(false);
        let slow_start = reader.seconds("slow_start_seconds", 0.0, 3_600.0).unwrap_or(0);
        let check = check(&mut reader, pointer);
        match (name, target) {
            (Some(name), Some(target)) if reader.mistakes.is_empty() => Ok(Self {
                name,
                app,
                target,
                region,
                country,
                weight: small(weight),
                soft_limit: small(soft_limit),
                hard_limit: small(hard_limit),
                priority: u16::try_from(priority).unwrap_or(u16::MAX),
                drain,
                slow_start,
                check,
                registrar: None,
            }),
            _ => Err(reader.mistakes),
        }
    }
}

/// Numbers here are bounded far below that.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn target(reader: &mut DocumentReader<'_>) -> Option<Target> {
    let Some(value) = reader.field("address") else {
        reader.mistake("address", "is missing", ADDRESS);
        return None;
    };
    let target = value.as_str().and_then(address);
    if target.is_none() {
        reader.mistake("address", format!("is {}", shown(value)), ADDRESS);
    }
    target
}

/// `host:port`.
#[must_use]
pub fn address(text: &str) -> Option<Target> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|port| is_number && *port > 0)?;
    if let Some(bare) = host.strip_prefix('[') {
        let address: IpAddr = bare.strip_suffix(']')?.parse().ok().filter(IpAddr::is_ipv6)?;
        return Some(Target { host: Host::Address(address), port });
    }
    if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
        return Some(Target { host: Host::Address(address.into()), port });
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A last label of digits is an address that was mistyped.
    let is_name = host.len() <= 253
        && host.split('.').all(is_label)
        && host.rsplit('.').next().is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    is_name.then(|| Target { host: Host::Name(host.to_ascii_lowercase().into()), port })
}

fn check(reader: &mut DocumentReader<'_>, pointer: &str) -> Option<CheckConfig> {
    let Some(value) = reader.field("check") else { return Some(CheckConfig::default()) };
    let mut inner = match DocumentReader::new(value, &format!("{pointer}/check"), &CHECK_KEYS) {
        Ok(inner) => inner,
        Err(mistakes) => {
            reader.mistakes.extend(mistakes);
            return None;
        }
    };
    let kind =
        inner.choice::<CheckKind>("kind", "\"tcp\", \"http\", \"tls\", \"off\"").unwrap_or(CheckKind::Tcp);
    let path = inner.text("path", 1, 1_024).unwrap_or("/");
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || (inner.field("path").is_some() && kind != CheckKind::Http) {
        inner.mistake(
            "path",
            format!("is {path:?}"),
            "a path of a check whose kind is \"http\": \"/healthz\"",
        );
    }
    let mut seconds = |field, least, most| inner.seconds(field, least, most).map(Duration::from_nanos);
    let defaults = CheckConfig::default();
    let interval = seconds("interval_seconds", 0.1, 3_600.0).unwrap_or(defaults.interval);
    let timeout = seconds("timeout_seconds", 0.05, 60.0).unwrap_or(defaults.timeout);
    let mut times = |field, default| inner.number(field, 1, 100).map_or(default, small);
    let thresholds = Thresholds {
        fall: times("fall", defaults.thresholds.fall),
        rise: times("rise", defaults.thresholds.rise),
    };
    let probe = match kind {
        CheckKind::Off => None,
        CheckKind::Tcp => Some(Probe::Tcp),
        CheckKind::Tls => Some(Probe::Tls),
        CheckKind::Http => Some(Probe::Http(path.into())),
    };
    reader.mistakes.append(&mut inner.mistakes);
    probe.map(|probe| CheckConfig { probe, interval, timeout, thresholds })
}

const _: () = assert!(SECOND == 1_000_000_000, "seconds are read as nanoseconds");
