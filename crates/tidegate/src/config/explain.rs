//! `tidegate config explain`: each setting, its value, and the layer it came from.

use std::fmt::Write;

use tidegate_settings::mistake::Origin;

use super::Loaded;

impl Loaded {
    /// The file's name as the user gave it; empty if there is none.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }

    /// Where the value of the setting at `path` came from.
    #[must_use]
    pub fn origin(&self, path: &str) -> &Origin {
        let found = self.origins.iter().find(|(other, _)| *other == path);
        found.map_or(&Origin::Default, |(_, origin)| origin)
    }

    /// Where a value stands that could not be put in force: in one of the sources, or in the file together with what is stored.
    pub(super) fn origin_of_refused(&self, path: &str) -> Origin {
        let of_setting = self.origins.iter().find(|(known, _)| *known == path).map(|(_, origin)| origin);
        let lists = self.listener_origins.iter();
        let of_list = || lists.rev().find(|(listener, _)| path.starts_with(&listener.path("")));
        of_setting.or_else(|| of_list().map(|(_, origin)| origin)).unwrap_or(&Origin::Stored).clone()
    }

    /// Each setting: path, value (secrets redacted), origin.
    #[must_use]
    pub fn settings(&self) -> Vec<[String; 3]> {
        let file = self.file_name();
        let shown = self.config.settings.show().into_iter();
        shown.map(|(path, value)| [path.to_owned(), value, described(self.origin(path), file)]).collect()
    }

    /// One line per setting, then what the file declares.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut rows = self.settings();
        let source = self.file.clone().unwrap_or_else(|| "default".to_owned());
        let (policies, overrides) = (self.config.layer.policies.len(), self.config.layer.overrides.len());
        let shown =
            if policies == 0 { "the built-in one".to_owned() } else { format!("{policies} in the file") };
        rows.push(["[[policy]]".to_owned(), shown, source.clone()]);
        let (upstreams, routes) = self.config.gateway.counts();
        let counts = [
            ("[[override]]", overrides),
            ("[[upstream]]", upstreams),
            ("[[route]]", routes),
            ("[[gateway.listener]]", self.config.listeners.len()),
        ];
        for (list, count) in counts {
            rows.push([list.to_owned(), format!("{count} in the file"), source.clone()]);
        }

        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        let mut text = String::new();
        for [path, value, origin] in &rows {
            // Invariant: writing to a String cannot fail.
            let _infallible = writeln!(text, "{path:first$}  {value:second$}  {origin}");
        }
        text
    }
}

fn described(origin: &Origin, file: &str) -> String {
    let mut text = String::new();
    // Invariant: writing to a String cannot fail.
    let _infallible = origin.describe(file, &mut text);
    text
}
