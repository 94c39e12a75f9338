//! The types that may hold a secret. They have no way to be printed: `Debug` and [`Value::show`] are
//! redacted, and messages about them do not repeat them (fault 52).

use std::fmt;

use serde_json::{Value as Json, json};

use crate::value::{MAX_TEXT, TomlType, Value};

/// A text that must not appear in any output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for comparing or connecting; never for printing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(redacted)")
    }
}

impl Value for Secret {
    /// Least number of characters.
    type Range = usize;
    const TYPES: &'static [TomlType] = &[TomlType::String];
    const SECRET: bool = true;
    const FLAG: bool = false;

    fn parse(text: &str, least: &usize) -> Option<Self> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && (*least..=MAX_TEXT).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    fn accepted(least: &usize) -> String {
        format!("{least} to {MAX_TEXT} printable ASCII characters without spaces")
    }

    fn schema(least: &usize) -> Json {
        json!({ "type": "string", "minLength": least, "maxLength": MAX_TEXT, "writeOnly": true })
    }

    fn show(&self) -> String {
        "(redacted)".to_owned()
    }
}

/// The schemes that `RedisConfig::from_url` reads.
const REDIS_SCHEMES: [&str; 6] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// Where counters live.
#[derive(Clone, PartialEq, Eq)]
pub enum Store {
    /// In this process.
    Memory,
    /// In Redis, at this URL.
    Redis(Secret),
    /// In PostgreSQL, at this URL.
    Postgres(Secret),
}

impl Value for Store {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];
    const SECRET: bool = true;

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text == "memory" {
            return Some(Self::Memory);
        }
        let (scheme, rest) = text.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        if hosts.is_empty() || text.len() > MAX_TEXT || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        match scheme {
            _ if REDIS_SCHEMES.contains(&scheme) => Some(Self::Redis(Secret(text.to_owned()))),
            "postgres" | "postgresql" => Some(Self::Postgres(Secret(text.to_owned()))),
            _ => None,
        }
    }

    fn accepted((): &()) -> String {
        "\"memory\" or a URL: redis://, redis-sentinel://, redis-cluster:// (rediss... for TLS), postgres://"
            .to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "pattern": "^(memory|rediss?(-sentinel|-cluster)?://.+|postgres(ql)?://.+)$" })
    }

    fn show(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Redis(Secret(url)) | Self::Postgres(Secret(url)) => without_credentials(url),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.show())
    }
}

/// Where the stored configuration is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// Where the counters are, if that is PostgreSQL; otherwise in the data directory.
    Auto,
    /// In the data directory.
    Local,
    /// In PostgreSQL, at this URL.
    Postgres(Secret),
}

impl Value for Place {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];
    const SECRET: bool = true;

    fn parse(text: &str, (): &()) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "local" => Some(Self::Local),
            _ => match Store::parse(text, &())? {
                Store::Postgres(url) => Some(Self::Postgres(url)),
                Store::Memory | Store::Redis(_) => None,
            },
        }
    }

    fn accepted((): &()) -> String {
        "\"auto\", \"local\" or a URL: postgres://".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "pattern": "^(auto|local|postgres(ql)?://.+)$" })
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Local => "local".to_owned(),
            Self::Postgres(Secret(url)) => without_credentials(url),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.show())
    }
}

/// A URL without user, password and query: a query may carry a password too.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // The last '@' anywhere: a password with an unescaped '/' or '?' must not slip through.
    let (credentials, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, host)| ("(redacted)@", host));
    let (place, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(place, _)| (place, "?(redacted)"));
    format!("{scheme}://{credentials}{place}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_told_apart_and_redacted() {
        for (text, shown) in [
            ("memory", Some("memory")),
            ("redis://h:6379/0", Some("redis://h:6379/0")),
            ("rediss://:canary@h/0", Some("rediss://(redacted)@h/0")),
            ("postgres://u:can/ary@h/db", Some("postgres://(redacted)@h/db")),
            ("postgresql://h/db?password=canary", Some("postgresql://h/db?(redacted)")),
            ("redis-sentinel://u:canary@h,i/m", Some("redis-sentinel://(redacted)@h,i/m")),
            (
                "rediss-cluster://u:can?ary@h,i?key=/canary",
                Some("rediss-cluster://(redacted)@h,i?(redacted)"),
            ),
            ("redis://", None),
            ("redis://u@/0", None),
            ("mysql://h", None),
            ("redis://h\n", None),
            ("Memory", None),
        ] {
            let store = Store::parse(text, &());
            assert_eq!(store.as_ref().map(Store::show).as_deref(), shown, "{text}");
            assert!(!format!("{store:?}").contains("canary"));
        }
    }
}
