//! The intake's part of the configuration: its listeners, and the file's `[[intake.alert]]` and `[[intake.forward]]` entries, with the lines of the file put to their mistakes.

use std::collections::HashMap;

use tidegate_algorithms::policy::Mistake as DocumentMistake;
use tidegate_edge::config::each;
use tidegate_intake::alerts::{ALERT_KEYS, AlertRule, MAX_ALERTS};
use tidegate_intake::forward::{FORWARD_KEYS, ForwardConfig, MAX_FORWARDS};
use tidegate_limiter::policy_set::DEFAULT_POLICY;
use tidegate_net::tls;
use tidegate_settings::document::Document;
use tidegate_settings::mistake::{Found, Mistake, Origin};

use super::checker::Checker;
use super::listener::{Listener, ServiceListener};
use super::service::{ServiceConfig, Table, list_schema};
use super::{Config, gateway};

/// The table that holds the lists, beside its settings.
const TABLE: &str = "intake";

/// The setting that lists policies.
const POLICIES: &str = "intake.policies";

const ALERTS: &str = "alert";
const FORWARDS: &str = "forward";

/// What the file says of the intake, its settings aside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntakeLists {
    /// Alert rules with distinct names.
    pub alerts: Vec<AlertRule>,
    /// Forwards with distinct names.
    pub forwards: Vec<ForwardConfig>,
}

impl Listener {
    /// The metrics intake.
    pub const INTAKE: Self = Self::of_settings(TABLE, "intake");
    /// StatsD.
    pub const STATSD: Self = Self::of_settings(TABLE, "statsd");
}

/// The intake.
pub(super) const SERVICE: ServiceConfig = ServiceConfig {
    tables: &[
        Table { path: "intake.alert", schema: || list_schema(&ALERT_KEYS, MAX_ALERTS, &["name", "metric"]) },
        Table {
            path: "intake.forward",
            schema: || list_schema(&FORWARD_KEYS, MAX_FORWARDS, &["name", "to"]),
        },
    ],
    check,
    listeners: |config| {
        let intake = &config.settings.intake;
        vec![
            ServiceListener::of_settings(Listener::INTAKE, intake.listen, &intake.tls, tls::HTTP),
            ServiceListener::plain(Listener::STATSD, "statsd_listen", intake.statsd_listen),
        ]
    },
    warnings,
    serve: None,
};

/// Checks the lists. Entries with mistakes are left out.
fn check(checker: &mut Checker<'_>, config: &mut Config) {
    let mut mistakes = Vec::new();
    let alerts = checker.list(TABLE, ALERTS);
    let alerts = each(&pointer(ALERTS), &alerts, MAX_ALERTS, &mut mistakes, AlertRule::read);
    distinct(ALERTS, alerts.iter().map(|(at, rule)| (*at, &*rule.name)), &mut mistakes);
    let forwards = checker.list(TABLE, FORWARDS);
    let read = |value: &_, pointer: &_| ForwardConfig::read(value, pointer, cfg!(feature = "kafka"));
    let forwards = each(&pointer(FORWARDS), &forwards, MAX_FORWARDS, &mut mistakes, read);
    distinct(FORWARDS, forwards.iter().map(|(at, forward)| (*at, &*forward.name)), &mut mistakes);
    checker.adopt(mistakes);
    config.intake = IntakeLists {
        alerts: alerts.into_iter().map(|(_, rule)| rule).collect(),
        forwards: forwards.into_iter().map(|(_, forward)| forward).collect(),
    };
}

fn pointer(list: &str) -> String {
    format!("/{TABLE}/{list}")
}

fn distinct<'a>(
    list: &str,
    names: impl Iterator<Item = (usize, &'a str)>,
    mistakes: &mut Vec<DocumentMistake>,
) {
    let mut first = HashMap::new();
    for (at, name) in names {
        if let Some(other) = first.insert(name, at) {
            mistakes.push(DocumentMistake {
                pointer: format!("{}/{at}/name", pointer(list)),
                problem: format!("is {name:?}, as is {TABLE}.{list}[{other}]"),
                accepted: "a name of its own".to_owned(),
            });
        }
    }
}

/// A policy that the intake lists is one of the file's, as one is that a route or a listener lists: with a typing mistake
/// in it every batch would be answered 503. A file without policies leaves them to the admin API, and is warned.
pub(super) fn cross_checks(
    config: &Config,
    document: &Document<'_>,
    origin: impl Fn(&str) -> Origin,
    found: &mut Found,
) {
    let declared = gateway::declared(document);
    if declared.is_empty() || config.settings.intake.listen.is_none() {
        return;
    }
    let listable = gateway::listable(&declared);
    let names = config.settings.intake.policies.iter().map(ToString::to_string);
    for (index, name) in names.enumerate().filter(|(_, name)| !listable.contains(&&**name)) {
        found.push(Mistake {
            origin: origin(POLICIES),
            path: format!("{POLICIES}[{index}]"),
            problem: format!("is {name:?}, which is no policy of the file"),
            accepted: format!("one of {}", listable[..listable.len().min(20)].join(", ")),
        });
    }
}

/// What is not wrong but looks like a mistake.
fn warnings(Config { settings, intake: lists, layer, .. }: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let names = settings.intake.listen.map(|_| &settings.intake.policies).into_iter().flatten();
    let names =
        names.map(ToString::to_string).filter(|name| layer.policies.is_empty() && name != DEFAULT_POLICY);
    warnings.extend(names.map(|name| {
        format!("{POLICIES} lists {name:?}, which the file does not declare: until a policy of this name is stored, batches are answered 503")
    }));
    if settings.intake.listen.is_none() {
        if !lists.alerts.is_empty() {
            warnings.push("no [[intake.alert]] has an effect, since intake.listen is off".to_owned());
        }
        if !lists.forwards.is_empty() {
            warnings.push("no [[intake.forward]] has an effect, since intake.listen is off".to_owned());
        }
        if settings.intake.statsd_listen.is_some() {
            warnings.push("intake.statsd_listen has no effect, since intake.listen is off".to_owned());
        }
    } else if settings.intake.alert_webhook.is_none() && !lists.alerts.is_empty() {
        warnings.push(
            "alerts are sent to no receiver, since intake.alert_webhook is not set: GET /v1/intake/alerts shows them"
                .to_owned(),
        );
    }
    warnings
}

/// The page of the reference.
pub(super) const REFERENCE: &str = "
## `[[intake.alert]]`

Alert rules on what comes in ([intake.md](intake.md#alerts)). Up to 100. Changed rules are in force when the file is read again:
an alert goes on under the rule of its name.

| key | default | accepted | what it is |
|---|---|---|---|
| `name` | required | a name | its name, which no other rule has |
| `metric` | required | a text of 1 to 255 bytes | the metric that it looks at |
| `tags` | none | a table of texts | tags that a line must have |
| `above`, `below` | one is required | a number | the threshold that values must be above, or below |
| `for_seconds` | 0 | 0 to 86,400 | how long they must be beyond it |
| `labels` | none | a table of up to 20 texts | labels that its alerts have beside `alertname`, `metric`, `client` and the tags |
| `summary` | what was found, in words | a text of 1 to 1,024 bytes | what is wrong, for people |

## `[[intake.forward]]`

Where every line of the intake's log is sent on to ([intake.md](intake.md#forwarding)). Up to 16. Changed forwards are in force
when the file is read again, and go on where those of their names were.

| key | default | accepted | what it is |
|---|---|---|---|
| `name` | required | a name | its name, which no other forward has; what was delivered is remembered under it |
| `to` | required | remote-write, otlp, kafka | what the other side speaks: Prometheus remote write 1.0, OpenTelemetry over HTTP, or Kafka in a build that has it |
| `url` | required, but for Kafka | a URL without a user and password | where it is, with the path: `http://127.0.0.1:9090/api/v1/write` |
| `token_file` | none | a file | a token that is sent as `authorization: Bearer`; read again after a failure |
| `servers` | required for Kafka | a list of up to 16 `host:port` | some servers of the cluster; they name the others |
| `topic` | required for Kafka | a topic's name | where the lines go |
";
