//! Layers: a flag wins over the environment, the environment over the file, the file over the
//! default.
//!
//! Every layer that has a value is checked, also one that another layer hides: the hidden mistake
//! would come to light on the day the variable is unset.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::document::Document;
use crate::mistake::{Found, Mistake, Origin};
use crate::setting::Setting;
use crate::telemetry;
use crate::value::{TomlType, Value, shown};

/// What every variable of ours starts with.
pub(crate) const PREFIX: &str = "TIDEGATE_";

/// Names the file itself, so it is no setting.
pub const FILE_VARIABLE: &str = "TIDEGATE_CONFIG";
/// What clients of the service send, so it is no setting of the service.
pub const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Which server commands ask, and which intake: so no settings of either.
pub const SERVER_VARIABLE: &str = "TIDEGATE_SERVER";
/// See [`SERVER_VARIABLE`].
pub const INTAKE_SERVER_VARIABLE: &str = "TIDEGATE_INTAKE_SERVER";
/// What a coordinator of load shows its agents, so no setting of the service.
pub const AGENT_TOKEN_VARIABLE: &str = "TIDEGATE_AGENT_TOKEN";
/// Names the file with the operator's token, which the program reads.
pub const TOKEN_FILE_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN_FILE";
/// The operator's token itself.
const ADMIN_TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";
/// The variables of the environment that start with `TIDEGATE_`, and those of OpenTelemetry that are known. An empty one counts
/// as unset.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `None`: not UTF-8.
    pub(crate) values: BTreeMap<String, Option<String>>,
}

impl Environment {
    /// The process's own environment.
    #[must_use]
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of a variable, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_deref()
    }

    /// The same with the operator's token.
    #[must_use]
    pub fn with_token(mut self, token: String) -> Self {
        self.values.insert(ADMIN_TOKEN.to_owned(), Some(token));
        self
    }

    /// What the variables of OpenTelemetry ask for and do not get.
    #[must_use]
    pub fn telemetry_warning(&self) -> Option<String> {
        telemetry::warning(&self.values)
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let ours = pairs.into_iter().filter_map(|(name, value)| {
            let name = name.into().into_string().ok();
            let name = name.filter(|name| name.starts_with(PREFIX) || telemetry::is_standard(name))?;
            let value = value.into();
            (!value.is_empty()).then(|| (name, value.into_string().ok()))
        });
        let mut values = ours.collect();
        telemetry::in_our_words(&mut values);
        Self { values }
    }
}

/// The values that were given on the command line, by the paths of their settings.
pub type FlagValues = BTreeMap<&'static str, String>;

/// One value on its way in.
struct Candidate<'a> {
    origin: Origin,
    text: Option<&'a str>,
    /// The type it was written in, where types exist.
    written: Option<TomlType>,
}

/// Picks the value of each setting and remembers where it came from.
pub struct Resolver<'a> {
    /// All settings.
    table: &'static [Setting],
    document: &'a Document<'a>,
    environment: &'a Environment,
    flags: &'a FlagValues,
    /// Where the value of each setting came from.
    pub origins: Vec<(&'static str, Origin)>,
    /// What is wrong.
    pub found: Found,
}

impl<'a> Resolver<'a> {
    /// For the settings of `table`.
    #[must_use]
    pub fn new(
        table: &'static [Setting],
        document: &'a Document<'a>,
        environment: &'a Environment,
        flags: &'a FlagValues,
    ) -> Self {
        Self { table, document, environment, flags, origins: Vec::new(), found: Found::default() }
    }

    /// The setting's value; its default if what was given is wrong (and reported).
    ///
    /// # Panics
    /// When `default` is outside of `range`, which a test of the table rules out.
    pub fn value<T: Value>(&mut self, path: &'static str, default: &str, range: &T::Range) -> T {
        let mut chosen = None;
        let variable = self.variable(self.setting(path).map(Setting::environment_name));
        let standard = self.variable(telemetry::standard_variable(path).map(str::to_owned));
        let scalar = self.document.scalar(path);
        let file = scalar.as_ref().map(|scalar| Candidate {
            origin: Origin::File(scalar.position),
            text: Some(&scalar.text),
            written: Some(scalar.written),
        });
        for candidate in [self.flag(path), variable, standard, file].into_iter().flatten() {
            let value = read::<T>(&candidate, path, range);
            let value = value.map_err(|mistake| self.found.push(mistake)).ok();
            chosen.get_or_insert((candidate.origin, value));
        }
        let (origin, value) = chosen.unwrap_or((Origin::Default, None));
        self.origins.push((path, origin));
        value.or_else(|| T::parse(default, range)).expect("a test checks that every default is accepted")
    }

    /// Where the value of a resolved setting came from.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        let found = self.origins.iter().find(|(other, _)| *other == path);
        found.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    fn flag(&self, path: &str) -> Option<Candidate<'a>> {
        let text = self.flags.get(path)?;
        let origin = Origin::Flag(format!("--{}", self.setting(path)?.flag_name()?));
        Some(Candidate { origin, text: Some(text), written: None })
    }

    fn variable(&self, name: Option<String>) -> Option<Candidate<'a>> {
        let name = name?;
        let text = self.environment.values.get(&name)?.as_deref();
        Some(Candidate { origin: Origin::Environment(name), text, written: None })
    }

    fn setting(&self, path: &str) -> Option<&'static Setting> {
        self.table.iter().find(|setting| setting.path == path)
    }
}

fn read<T: Value>(candidate: &Candidate<'_>, path: &str, range: &T::Range) -> Result<T, Mistake> {
    let refuse = |problem| {
        let (origin, path) = (candidate.origin.clone(), path.to_owned());
        let accepted = match &origin {
            Origin::Environment(variable) => telemetry::accepted(variable),
            _ => None,
        };
        let accepted = accepted.map_or_else(|| T::accepted(range), str::to_owned);
        Err(Mistake { origin, path, problem, accepted })
    };
    let Some(text) = candidate.text else { return refuse("is not UTF-8".to_owned()) };
    if let Some(written) = candidate.written.filter(|written| !T::TYPES.contains(written)) {
        return refuse(written.described().to_owned());
    }
    match T::parse(text, range) {
        Some(value) => Ok(value),
        None if T::is_secret(text) => {
            refuse(format!("is not acceptable ({} characters)", text.chars().count()))
        }
        None => refuse(shown(text)),
    }
}
