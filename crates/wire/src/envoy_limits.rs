//! The configuration file of Envoy's reference rate-limit service, as values.
//!
//! ```yaml
//! domain: shop
//! descriptors:
//!   - key: client            # any value, each with a counter of its own
//!     rate_limit: {unit: minute, requests_per_unit: 10}
//!   - key: client
//!     value: internal        # this value: more specific, so the rule above is not asked
//!     rate_limit: {unlimited: true}
//! ```
//!
//! Every mistake is found in one pass, with its place; a file that has one gives nothing. What only
//! concerns the reference service's own metrics is read, not kept, and comes back as a warning.
//! What a rule means is decided by whoever takes the values.
//!
//! Values are read as that service reads them: `yes` is true, a unit is in any case, a number may stand
//! where a text is wanted. An absent `requests_per_unit` denies everything there; here it is a mistake.
//!
//! Reference: the README of envoyproxy/ratelimit, "Descriptor list definition".

use crate::yaml::{self, Finding, Node, Position, Value};

/// Most findings that are kept of one file.
pub(crate) const MAX_FINDINGS: usize = 1_000;

/// A file: the rules of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name, not empty.
    pub name: String,
    /// Its rules.
    pub descriptors: Vec<LimitRule>,
}

/// A rule, or a step on the way to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// Where it begins.
    pub place: Position,
    /// Which one it is: `descriptors[0].descriptors[2]`.
    pub path: String,
    /// The entry's key that it is about, not empty.
    pub key: String,
    /// The entry's value, in which each `*` stands for anything; none: any value that no sibling has.
    pub value: Option<String>,
    /// What is admitted where this is the last entry; none: everything.
    pub limit: Option<RateLimit>,
    /// Whether it is counted and never enforced.
    pub shadow_mode: bool,
    /// Whether all values that a `*` matches count together.
    pub share_threshold: bool,
    /// Rules about descriptors with one more entry.
    pub descriptors: Vec<Self>,
}

/// A rule's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// How much; none: unlimited.
    pub quota: Option<Quota>,
    /// The name by which others replace it.
    pub name: Option<String>,
    /// The names of those that it replaces, with their places.
    pub replaces: Vec<(String, Position)>,
}

/// Requests per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How many.
    pub requests_per_unit: u32,
    /// The unit.
    pub unit: LimitUnit,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUnit {
    /// 1 s
    Second,
    /// 60 s
    Minute,
    /// 3,600 s
    Hour,
    /// 86,400 s
    Day,
    /// Seven days.
    Week,
    /// Thirty days.
    Month,
    /// 365 days.
    Year,
}

impl LimitUnit {
    /// Its length as the reference service counts it.
    #[must_use]
    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }
}

/// What reading gave.
#[derive(Debug)]
pub struct DomainRead {
    /// The rules.
    pub domain: Domain,
    /// What was read and has no effect.
    pub warnings: Vec<Finding>,
}

/// Reads a file.
///
/// # Errors
/// Everything that is wrong with it, at least one mistake and at most [`MAX_FINDINGS`].
pub fn read(bytes: &[u8]) -> Result<DomainRead, Vec<Finding>> {
    let root = yaml::read(bytes).map_err(|mistake| vec![mistake])?;
    let mut reader = LimitsReader::default();
    match reader.domain(&root) {
        Some(domain) if reader.mistakes.is_empty() => Ok(DomainRead { domain, warnings: reader.warnings }),
        _ => Err(reader.mistakes),
    }
}

const UNITS: [(&str, LimitUnit); 7] = [
    ("second", LimitUnit::Second),
    ("minute", LimitUnit::Minute),
    ("hour", LimitUnit::Hour),
    ("day", LimitUnit::Day),
    ("week", LimitUnit::Week),
    ("month", LimitUnit::Month),
    ("year", LimitUnit::Year),
];
const TRUE: [&str; 6] = ["true", "True", "TRUE", "yes", "on", "y"];
const FALSE: [&str; 6] = ["false", "False", "FALSE", "no", "off", "n"];

#[derive(Default)]
struct LimitsReader {
    mistakes: Vec<Finding>,
    warnings: Vec<Finding>,
}

/// A map whose fields are being read.
struct MapFields<'a> {
    place: Position,
    path: &'a str,
    entries: &'a [(String, Position, Node)],
}

impl<'a> MapFields<'a> {
    fn get(&self, name: &str) -> Option<&'a Node> {
        let entry = self.entries.iter().find(|(key, _, _)| key == name)?;
        Some(&entry.2).filter(|node| node.value != Value::Null)
    }

    fn at(&self, name: &str) -> String {
        join(self.path, name)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl LimitsReader {
    fn mistake(
        &mut self,
        place: Position,
        path: String,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) {
        if self.mistakes.len() < MAX_FINDINGS {
            self.mistakes.push(Finding { place, path, problem: problem.into(), accepted: accepted.into() });
        }
    }

    fn ignored(&mut self, fields: &MapFields<'_>, name: &str, because: &str) {
        if let Some(node) = fields.get(name)
            && self.warnings.len() < MAX_FINDINGS
        {
            let (path, problem) = (fields.at(name), format!("is ignored: {because}"));
            self.warnings.push(Finding { place: node.place, path, problem, accepted: String::new() });
        }
    }

    fn domain(&mut self, root: &Node) -> Option<Domain> {
        let fields = self.fields(root, "", &["domain", "descriptors"])?;
        let name = self.required(&fields, "domain", "the name of the domain");
        let descriptors = self.descriptors(&fields);
        Some(Domain { name: name?, descriptors })
    }

    /// The fields of a map, unknown and repeated ones reported.
    fn fields<'a>(&mut self, node: &'a Node, path: &'a str, known: &[&str]) -> Option<MapFields<'a>> {
        let Value::Map(entries) = &node.value else {
            let accepted = format!("a map of {}", known.join(", "));
            self.mistake(node.place, path.to_owned(), format!("is {}", node.value.kind()), accepted);
            return None;
        };
        for (index, (key, place, _)) in entries.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                self.mistake(*place, join(path, &shown(key)), "is not a known key", known.join(", "));
            } else if entries[..index].iter().any(|(earlier, _, _)| earlier == key) {
                self.mistake(*place, join(path, key), "is there twice", "one of each key");
            }
        }
        Some(MapFields { place: node.place, path, entries })
    }

    fn descriptors(&mut self, fields: &MapFields<'_>) -> Vec<LimitRule> {
        let Some(node) = fields.get("descriptors") else { return Vec::new() };
        let path = fields.at("descriptors");
        let Value::List(items) = &node.value else {
            self.mistake(node.place, path, format!("is {}", node.value.kind()), "a list of descriptors");
            return Vec::new();
        };
        let mut descriptors: Vec<LimitRule> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some(descriptor) = self.descriptor(item, format!("{path}[{index}]")) else { continue };
            let same = |other: &&LimitRule| other.key == descriptor.key && other.value == descriptor.value;
            if let Some(other) = descriptors.iter().find(same) {
                let problem = format!("has the key and value of the one in line {}", other.place.line);
                self.mistake(descriptor.place, descriptor.path.clone(), problem, "one rule for each");
            }
            descriptors.push(descriptor);
        }
        descriptors
    }

    fn descriptor(&mut self, node: &Node, path: String) -> Option<LimitRule> {
        const KNOWN: [&str; 10] = [
            "key",
            "value",
            "rate_limit",
            "shadow_mode",
            "descriptors",
            "share_threshold",
            "detailed_metric",
            "value_to_metric",
            "quota_mode",
            "metadata",
        ];
        let fields = self.fields(node, &path, &KNOWN)?;
        let key = self.required(&fields, "key", "the key of a descriptor's entry");
        let value = self.text(&fields, "value").filter(|value| !value.is_empty());
        let limit = self.rate_limit(&fields);
        let shadow_mode = self.flag(&fields, "shadow_mode");
        let share_threshold = self.flag(&fields, "share_threshold");
        if share_threshold && !value.as_ref().is_some_and(|value| value.contains('*')) {
            let path = fields.at("share_threshold");
            self.mistake(
                node.place,
                path,
                "is set where there is nothing to share",
                "it, with a * in the value",
            );
        }
        for name in ["detailed_metric", "value_to_metric"] {
            self.flag(&fields, name);
            self.ignored(&fields, name, "metrics have no label that a client can choose");
        }
        self.ignored(&fields, "metadata", "it belongs to the reference service's replies");
        if self.flag(&fields, "quota_mode") {
            self.mistake(node.place, fields.at("quota_mode"), "is not supported", "false");
        }
        let descriptors = self.descriptors(&fields);
        let place = node.place;
        Some(LimitRule { place, key: key?, value, limit, shadow_mode, share_threshold, descriptors, path })
    }

    fn rate_limit(&mut self, of: &MapFields<'_>) -> Option<RateLimit> {
        let node = of.get("rate_limit")?;
        let path = of.at("rate_limit");
        let known = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
        let fields = self.fields(node, &path, &known)?;
        let unlimited = self.flag(&fields, "unlimited");
        let name = self.text(&fields, "name").filter(|name| !name.is_empty());
        let replaces = self.replaces(&fields, name.as_deref());
        let quota = if unlimited {
            for name in ["unit", "requests_per_unit"] {
                if let Some(given) = fields.get(name) {
                    self.mistake(
                        given.place,
                        fields.at(name),
                        "is given for what is unlimited",
                        "leave it out",
                    );
                }
            }
            None
        } else {
            let unit = self.unit(&fields);
            let requests_per_unit = self.requests(&fields);
            Some(Quota { requests_per_unit: requests_per_unit?, unit: unit? })
        };
        Some(RateLimit { quota, name, replaces })
    }

    fn unit(&mut self, fields: &MapFields<'_>) -> Option<LimitUnit> {
        let accepted = UNITS.map(|(name, _)| name).join(", ");
        let text = self.required(fields, "unit", &accepted)?;
        let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)).map(|(_, unit)| *unit);
        if let (None, Some(node)) = (unit, fields.get("unit")) {
            self.mistake(node.place, fields.at("unit"), format!("is {:?}", shown(&text)), accepted);
        }
        unit
    }

    fn requests(&mut self, fields: &MapFields<'_>) -> Option<u32> {
        let accepted = format!("a whole number from 0 to {}", u32::MAX);
        let text = self.required(fields, "requests_per_unit", &accepted)?;
        let number = text.parse().ok();
        if let (None, Some(node)) = (number, fields.get("requests_per_unit")) {
            self.mistake(
                node.place,
                fields.at("requests_per_unit"),
                format!("is {:?}", shown(&text)),
                accepted,
            );
        }
        number
    }

    fn replaces(&mut self, of: &MapFields<'_>, own: Option<&str>) -> Vec<(String, Position)> {
        let Some(node) = of.get("replaces") else { return Vec::new() };
        let path = of.at("replaces");
        let Value::List(items) = &node.value else {
            self.mistake(node.place, path, format!("is {}", node.value.kind()), "a list of names");
            return Vec::new();
        };
        let mut names = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(fields) = self.fields(item, &path, &["name"]) else { continue };
            let Some(name) = self.required(&fields, "name", "the name of another rate_limit") else {
                continue;
            };
            if Some(name.as_str()) == own {
                self.mistake(item.place, path, "replaces itself", "the name of another rate_limit");
            }
            names.push((name, item.place));
        }
        names
    }

    fn flag(&mut self, fields: &MapFields<'_>, name: &str) -> bool {
        let Some(text) = self.text(fields, name) else { return false };
        let set = TRUE.contains(&text.as_str());
        if let (false, Some(node)) = (set || FALSE.contains(&text.as_str()), fields.get(name)) {
            self.mistake(node.place, fields.at(name), format!("is {:?}", shown(&text)), "true, false");
        }
        set
    }

    /// A text that must be there and not be empty.
    fn required(&mut self, fields: &MapFields<'_>, name: &str, accepted: &str) -> Option<String> {
        if fields.get(name).is_none() {
            self.mistake(fields.place, fields.at(name), "is missing", accepted);
        }
        let text = self.text(fields, name)?;
        if text.is_empty() {
            self.mistake(fields.place, fields.at(name), "is empty", accepted);
            return None;
        }
        Some(text)
    }

    fn text(&mut self, fields: &MapFields<'_>, name: &str) -> Option<String> {
        let node = fields.get(name)?;
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            other => {
                self.mistake(node.place, fields.at(name), format!("is {}", other.kind()), "a scalar");
                None
            }
        }
    }
}

/// The beginning of what was written, on one line.
fn shown(text: &str) -> String {
    const LONGEST: usize = 64;
    let start: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() { start + "..." } else { start }
}

#[cfg(test)]
mod tests;
