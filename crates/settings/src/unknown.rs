//! Names that no setting and no service has: keys of the file, and variables of the environment.

use std::ops::Range;

use tidegate_algorithms::policy::{nearest, unknown_key};
use toml::de::{DeTable, DeValue};

use super::document::Document;
use super::mistake::{Found, Mistake};
use super::resolve::{
    Environment, FILE_VARIABLE, INTAKE_SERVER_VARIABLE, PREFIX, SERVER_VARIABLE, TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
};
use super::service::ServiceConfig;
use super::setting::Setting;
use super::settings::{GROUPS, TABLE};
use super::value::TomlType;

/// What is no setting and no typing mistake either. The last three are read by the client libraries, for where the
/// service is, and by their tests, for the binary and for their folder.
const NO_SETTINGS: [&str; 8] = [
    FILE_VARIABLE,
    TOKEN_VARIABLE,
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
    pub fn unknown_variables(&self) -> Vec<String> {
        let known: Vec<_> = TABLE.iter().map(Setting::environment_name).collect();
        let ours = self.values.keys().filter(|name| name.starts_with(PREFIX));
        let strange = ours.filter(|name| !NO_SETTINGS.contains(&name.as_str()) && !known.contains(name));
        let said = |name: &String| match nearest(name, known.iter().map(String::as_str)) {
            Some(meant) => format!("environment {name} names no setting; did you mean {meant}?"),
            None => format!("environment {name} names no setting"),
        };
        strange.map(said).collect()
    }
}

impl Document<'_> {
    /// Finds keys that nothing reads, neither a setting nor a service, and tables that are not tables.
    pub(super) fn find_unknown_keys(&self, services: &[ServiceConfig], found: &mut Found) {
        let tables: Vec<&'static str> =
            services.iter().flat_map(|it| it.tables).map(|table| table.path).collect();
        for (key, value) in self.root.iter() {
            let name = key.get_ref().as_ref();
            let is_group = GROUPS.iter().any(|(group, _)| *group == name);
            match value.get_ref() {
                DeValue::Table(table) if is_group => self.find_unknown_keys_in(name, table, &tables, found),
                other if is_group => found.push(Mistake {
                    origin: self.at(&value.span()),
                    path: name.to_owned(),
                    problem: TomlType::of(other).described().to_owned(),
                    accepted: format!("a table: [{name}]"),
                }),
                _ if tables.contains(&name) || TABLE.iter().any(|setting| setting.path == name) => {}
                _ => {
                    let tops = TABLE.iter().map(|s| s.path).filter(|path| !path.contains('.'));
                    let tables = tables.iter().copied().filter(|path| !path.contains('.'));
                    let names = tops.chain(GROUPS.iter().map(|(group, _)| *group)).chain(tables);
                    found.push(self.stranger(&key.span(), name.to_owned(), names));
                }
            }
        }
    }

    fn find_unknown_keys_in(
        &self,
        group: &str,
        table: &DeTable<'_>,
        tables: &[&'static str],
        found: &mut Found,
    ) {
        let in_group = |path: &'static str| path.strip_prefix(group)?.strip_prefix('.');
        let paths = TABLE.iter().map(|setting| setting.path).chain(tables.iter().copied());
        let known: Vec<_> = paths.filter_map(in_group).collect();
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        found.extend(unknown.map(|key| {
            self.stranger(&key.span(), format!("{group}.{}", key.get_ref()), known.iter().copied())
        }));
    }

    fn stranger<'n>(
        &self,
        span: &Range<usize>,
        path: String,
        known: impl Iterator<Item = &'n str>,
    ) -> Mistake {
        let known: Vec<_> = known.collect();
        let key = path.rsplit('.').next().unwrap_or_default();
        Mistake {
            origin: self.at(span),
            path: path.escape_debug().collect(),
            problem: unknown_key(key, known.iter().copied()),
            accepted: known.join(", "),
        }
    }
}
