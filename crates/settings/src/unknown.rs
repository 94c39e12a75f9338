//! Names that no setting and no service has: keys of the file, and variables of the environment.

use std::ops::Range;

use tidegate_algorithms::policy::{nearest, unknown_key};
use toml::de::{DeTable, DeValue};

use crate::document::Document;
use crate::mistake::{Found, Mistake};
use crate::resolve::{
    AGENT_TOKEN_VARIABLE, Environment, FILE_VARIABLE, INTAKE_SERVER_VARIABLE, PREFIX, SERVER_VARIABLE,
    TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};
use crate::setting::Setting;
use crate::value::TomlType;

/// What is no setting and no typing mistake either. The last three are read by the client libraries, for where the
/// service is, and by their tests, for the binary and for their folder.
const NO_SETTINGS: [&str; 9] = [
    FILE_VARIABLE,
    TOKEN_VARIABLE,
    AGENT_TOKEN_VARIABLE,
    SERVER_VARIABLE,
    INTAKE_SERVER_VARIABLE,
    TOKEN_FILE_VARIABLE,
    "TIDEGATE_URL",
    "TIDEGATE_BIN",
    "TIDEGATE_CLIENTS",
];

impl Environment {
    /// Variables that are spelt like ours and name no setting: likely a typing mistake.
    #[must_use]
    pub fn unknown_variables(&self, table: &[Setting]) -> Vec<String> {
        let known: Vec<_> = table.iter().map(Setting::environment_name).collect();
        let ours = self.values.keys().filter(|name| name.starts_with(PREFIX));
        let strange = ours.filter(|name| !NO_SETTINGS.contains(&name.as_str()) && !known.contains(name));
        let said = |name: &String| match nearest(name, known.iter().map(String::as_str)) {
            Some(meant) => format!("environment {name} names no setting; did you mean {meant}?"),
            None => format!("environment {name} names no setting"),
        };
        strange.map(said).collect()
    }
}

/// What the file may say.
#[derive(Clone, Copy, Debug)]
pub struct KnownKeys<'a> {
    /// The settings.
    pub settings: &'a [Setting],
    /// The tables that hold settings, with what they are about.
    pub groups: &'a [(&'static str, &'static str)],
    /// The paths of tables and lists of tables that are no settings: `route`, `gateway.listener`.
    pub tables: &'a [&'static str],
}

impl KnownKeys<'_> {
    /// What may stand outside of every group.
    fn tops(&self) -> Vec<&'static str> {
        let settings = self.settings.iter().map(|setting| setting.path);
        let groups = self.groups.iter().map(|(group, _)| *group);
        let tables = self.tables.iter().copied();
        let is_top = |path: &&'static str| !path.contains('.');
        settings.filter(is_top).chain(groups).chain(tables.filter(is_top)).collect()
    }

    /// What may stand in this group.
    fn members(&self, group: &str) -> Vec<&'static str> {
        let paths = self.settings.iter().map(|setting| setting.path).chain(self.tables.iter().copied());
        paths.filter_map(|path: &'static str| path.strip_prefix(group)?.strip_prefix('.')).collect()
    }
}

impl Document<'_> {
    /// Finds keys that nothing reads, neither a setting nor a service, and tables that are not tables.
    pub fn find_unknown_keys(&self, known: KnownKeys<'_>, found: &mut Found) {
        let tops = known.tops();
        for (key, value) in self.root.iter() {
            let name = key.get_ref().as_ref();
            let is_group = known.groups.iter().any(|(group, _)| *group == name);
            match value.get_ref() {
                DeValue::Table(table) if is_group => {
                    self.find_unknown_keys_in(name, table, &known.members(name), found);
                }
                other if is_group => found.push(Mistake {
                    origin: self.at(&value.span()),
                    path: name.to_owned(),
                    problem: TomlType::of(other).described().to_owned(),
                    accepted: format!("a table: [{name}]"),
                }),
                _ if tops.contains(&name) => {}
                _ => found.push(self.stranger(&key.span(), name.to_owned(), &tops)),
            }
        }
    }

    fn find_unknown_keys_in(
        &self,
        group: &str,
        table: &DeTable<'_>,
        known: &[&'static str],
        found: &mut Found,
    ) {
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        found.extend(
            unknown.map(|key| self.stranger(&key.span(), format!("{group}.{}", key.get_ref()), known)),
        );
    }

    fn stranger(&self, span: &Range<usize>, path: String, known: &[&'static str]) -> Mistake {
        let key = path.rsplit('.').next().unwrap_or_default();
        Mistake {
            origin: self.at(span),
            path: path.escape_debug().collect(),
            problem: unknown_key(key, known.iter().copied()),
            accepted: known.join(", "),
        }
    }
}
