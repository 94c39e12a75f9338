//! The checker, by which services read their tables of the file: it gives mistakes the lines of the file, and compares
//! listeners' addresses.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde_json::Value as Json;
use tidegate_algorithms::policy;
use tidegate_settings::document::{Document, Entries};
use tidegate_settings::mistake::{Found, Mistake, Origin, path};

use super::Config;
use super::listener::{ADDRESS_OF_ITS_OWN, Listener, clash, listen_addresses};

/// Reads tables of the file and notes what is wrong with them.
#[derive(Debug)]
pub struct Checker<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) found: &'a mut Found,
    /// Which addresses are taken, by the paths of their settings.
    taken: Vec<(String, SocketAddr)>,
    /// Where each listener of a list stands.
    listeners: Vec<(Listener, Origin)>,
    /// Pointers to what JSON cannot say, and its text.
    inexpressible: Vec<(String, String)>,
}

impl<'a> Checker<'a> {
    /// For a file whose settings are in `config`.
    pub(super) fn new(document: &'a Document<'a>, config: &Config, found: &'a mut Found) -> Self {
        let taken = listen_addresses(config);
        Self { document, found, taken, listeners: Vec::new(), inexpressible: Vec::new() }
    }

    /// The table `name` as JSON, empty if it is not there.
    #[must_use]
    pub fn table(&self, name: &str) -> Json {
        self.document.table(name)
    }

    /// The tables under `[[name]]` as JSON. More than `most`, and what is no list, are mistakes.
    pub fn entries(&mut self, name: &str, most: usize) -> Vec<Json> {
        let Entries { mut values, inexpressible } = self.document.entries(name).unwrap_or_else(|mistake| {
            self.found.push(mistake);
            Entries::default()
        });
        self.inexpressible.extend(inexpressible);
        let count = values.len();
        if count > most {
            self.refuse(&format!("/{name}/{most}"), format!("is one of {count}"), format!("at most {most}"));
            values.truncate(most);
        }
        values
    }

    /// The tables under `[[group.name]]` as JSON. What is no list is a mistake.
    pub(super) fn list(&mut self, group: &str, name: &str) -> Vec<Json> {
        match self.table(group).get_mut(name).map(Json::take) {
            None => Vec::new(),
            Some(Json::Array(values)) => values,
            Some(_) => {
                let accepted = format!("tables, each under [[{group}.{name}]]");
                self.refuse(&format!("/{group}/{name}"), "is no list", accepted);
                Vec::new()
            }
        }
    }

    /// Takes note of a listener whose table is at `pointer`. Its address is a mistake if another listener has it.
    pub fn add_listener(&mut self, listener: Listener, address: SocketAddr, pointer: &str) {
        self.listeners.push((listener, self.document.locate(pointer)));
        let at = format!("{pointer}/listen");
        match clash(&self.taken, address) {
            Some(problem) => self.refuse(&at, problem, ADDRESS_OF_ITS_OWN),
            None => self.taken.push((path(&at), address)),
        }
    }

    /// Adds mistakes that were found by JSON pointer.
    pub fn adopt(&mut self, found: Vec<policy::Mistake>) {
        for policy::Mistake { pointer, problem, accepted } in found {
            self.refuse(&pointer, problem, accepted);
        }
    }

    /// Adds a mistake in the value at `pointer`.
    pub(super) fn refuse(&mut self, pointer: &str, problem: impl Into<String>, accepted: impl Into<String>) {
        self.found.push(Mistake {
            origin: self.document.locate(pointer),
            path: path(pointer),
            problem: problem.into(),
            accepted: accepted.into(),
        });
    }

    /// Where each listener of a list stands. Refuses what JSON cannot say: a text was checked in its place, which may
    /// have been accepted.
    pub(super) fn finish(mut self) -> Vec<(Listener, Origin)> {
        let reported: HashSet<_> = self.found.list().iter().map(|mistake| mistake.path.clone()).collect();
        for (pointer, text) in std::mem::take(&mut self.inexpressible) {
            if !reported.contains(&path(&pointer)) {
                let accepted = "a string, a boolean, a list, a table or a 64-bit number";
                self.refuse(&pointer, format!("is {text}"), accepted);
            }
        }
        self.listeners
    }
}
