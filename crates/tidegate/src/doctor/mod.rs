//! `tidegate doctor`: is this installation fit to serve, and what would repair it?
//!
//! ```text
//!   configuration ──▶ look (files of the kernel, the disk, sockets, stores) ──▶ Seen ──▶ judge ──▶ Findings
//! ```
//!
//! Each area is a file: `look` collects and may block, `judge` is a function of what was seen. Nothing is
//! changed, with two exceptions, both undone by themselves: a port is bound for a moment to see whether it
//! could be, and a unit is counted in a shared store under a key that no request has.
//!
//! A running server of this installation is known by the lock that it holds on the data directory. What is
//! judged then is that process: its limits, its version, and the ports that it has.
//!
//! Deliberately absent: repairing, and any wait that is longer than a store's own.

mod clock;
mod cpu;
mod data_dir;
mod descriptors;
mod listeners;
mod memory;
mod names;
mod network;
mod nodes;
mod processes;
mod store;
mod tls;

use serde_json::{Value, json};

use crate::config::{Loaded, Mistakes};
use processes::Processes;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works now, and may not always.
    Warning,
    /// Something does not work.
    Problem,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// Something that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about, in a word.
    pub area: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so, and what follows from it.
    pub what: String,
    /// What to do about it; empty if nothing.
    pub repair: String,
}

impl Finding {
    fn ok(area: &'static str, what: impl Into<String>) -> Self {
        Self { area, level: Level::Ok, what: what.into(), repair: String::new() }
    }

    fn warning(area: &'static str, what: impl Into<String>, repair: impl Into<String>) -> Self {
        Self { area, level: Level::Warning, what: what.into(), repair: repair.into() }
    }

    fn problem(area: &'static str, what: impl Into<String>, repair: impl Into<String>) -> Self {
        Self { area, level: Level::Problem, what: what.into(), repair: repair.into() }
    }
}

/// Everything that was found out, in the order in which it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Vec<Finding>);

impl Report {
    /// Looks at everything that this configuration needs. Blocks, for some seconds where a store is away.
    #[must_use]
    pub fn of(configuration: &Result<Loaded, Mistakes>) -> Self {
        let loaded = match configuration {
            Ok(loaded) => loaded,
            Err(mistakes) => return Self(vec![unusable(mistakes)]),
        };
        let (config, processes) = (&loaded.config, Processes::look());
        let clock = clock::Watch::start();
        let mut found = vec![Finding::ok("configuration", "it has no mistakes")];
        found.extend(loaded.warnings.iter().map(|warning| {
            Finding::warning(
                "configuration",
                warning.clone(),
                "`tidegate config explain` shows each value with its origin",
            )
        }));
        let folder = data_dir::look(&config.settings, &processes);
        let server = folder.server.clone();
        found.extend(data_dir::judge(&folder));
        found.extend(listeners::judge(&listeners::look(config, server.as_ref(), &processes)));
        found.extend(descriptors::judge(&descriptors::look(config, server.as_ref())));
        found.extend(network::judge(&network::look(config)));
        found.extend(memory::judge(&config.settings, server.as_ref()));
        found.extend(cpu::judge(&cpu::look(&config.settings, server.as_ref())));
        found.extend(tls::judge(&tls::look(config)));
        found.extend(names::judge(&names::look(config)));
        let store = store::look(&config.settings);
        found.extend(store::judge(&store));
        found.extend(nodes::judge(&nodes::look(&config.settings, server.as_ref(), &store)));
        found.extend(clock::judge(&clock.end()));
        Self(found)
    }

    /// Whether something does not work.
    #[must_use]
    pub fn has_problems(&self) -> bool {
        self.count(Level::Problem) > 0
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }

    /// For people: a line for each finding, one below it for its repair, and the count.
    #[must_use]
    pub fn text(&self) -> String {
        let width = self.0.iter().map(|finding| finding.area.len()).max().unwrap_or_default();
        let mut text = String::new();
        for Finding { area, level, what, repair } in &self.0 {
            text.push_str(&format!("{:7}  {area:width$}  {what}\n", level.word()));
            if !repair.is_empty() {
                text.push_str(&format!("{:7}  {:width$}  repair: {repair}\n", "", ""));
            }
        }
        let (problems, warnings) = (self.count(Level::Problem), self.count(Level::Warning));
        text.push_str(&format!("problems: {problems}, warnings: {warnings}\n"));
        text
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let finding = |Finding { area, level, what, repair }: &Finding| json!({ "area": area, "level": level.word(), "what": what, "repair": repair });
        json!({
            "problems": self.count(Level::Problem),
            "warnings": self.count(Level::Warning),
            "findings": self.0.iter().map(finding).collect::<Vec<_>>(),
        })
    }
}

/// Without a configuration nothing else can be looked at.
fn unusable(mistakes: &Mistakes) -> Finding {
    Finding::problem(
        "configuration",
        format!("the server would not start with it:\n{mistakes}"),
        "mend what is named here; `tidegate check FILE` says when a file is good",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_each_finding_and_its_repair() {
        let report = Report(vec![
            Finding::ok("clock", "the kernel keeps it"),
            Finding::warning("data directory", "others can read it", "chmod 0700 /x"),
        ]);
        assert!(!report.has_problems());
        assert_eq!(
            report.text(),
            "ok       clock           the kernel keeps it\nwarning  data directory  others can read it\n\
             \x20                        repair: chmod 0700 /x\nproblems: 0, warnings: 1\n"
        );
        assert_eq!(report.json()["findings"][1]["level"], "warning");
        assert!(Report(vec![Finding::problem("clock", "", "")]).has_problems());
    }
}
