//! The tags of a line of StatsD: in the name, behind it, or both.

use std::borrow::Cow;

use super::StatsdError;
use crate::metrics::{EXPORTED, MAX_TAG_BYTES, MAX_TAGS, MetricError};

const NAME_TAG: StatsdError = StatsdError::Syntax("a tag in the name is not tag=value");

/// The tags of a line, each name once.
#[derive(Default)]
pub(super) struct StatsdTags<'a> {
    /// In the order in which their names came.
    list: Vec<(Cow<'a, str>, TagValues<'a>)>,
    /// Values, of which a tag may have several.
    values: usize,
    bytes: usize,
}

/// The values of a tag, sorted, with commas between them: no value has one.
type TagValues<'a> = Cow<'a, str>;

impl<'a> StatsdTags<'a> {
    /// Takes the tags out of a name that has some.
    pub(super) fn take_from_name(&mut self, name: &'a str) -> Result<&'a str, StatsdError> {
        let Some(at) = name.find([',', ';']) else { return Ok(name) };
        let separator = if name[at..].starts_with(';') { ';' } else { ',' };
        for tag in name[at + 1..].split(separator).filter(|tag| !tag.is_empty()) {
            let (name, value) = tag.split_once('=').ok_or(NAME_TAG)?;
            self.add(name, value)?;
        }
        Ok(&name[..at])
    }

    /// Adds a value to a tag.
    pub(super) fn add(&mut self, name: &'a str, value: &'a str) -> Result<(), StatsdError> {
        self.bytes += name.len() + value.len();
        if self.bytes > MAX_TAG_BYTES {
            return Err(MetricError::TagBytes.into());
        }
        let Some((_, values)) = self.list.iter_mut().find(|(known, _)| known == name) else {
            self.values += 1;
            self.list.push((name.into(), value.into()));
            return self.check_room();
        };
        let mut all: Vec<&str> = values.split(',').collect();
        if let Err(place) = all.binary_search(&value) {
            all.insert(place, value);
            *values = all.join(",").into();
            self.values += 1;
        }
        self.check_room()
    }

    /// Values of one tag count as tags do: each costs as much.
    fn check_room(&self) -> Result<(), StatsdError> {
        if self.values > MAX_TAGS { Err(MetricError::TooManyTags.into()) } else { Ok(()) }
    }

    pub(super) fn check_names(&self) -> Result<(), StatsdError> {
        // Otherwise a line without values of its own, as that of a set, would pass with it.
        let is_nameless = self.list.iter().any(|(name, _)| name.is_empty());
        if is_nameless { Err(MetricError::TagNameLength(0).into()) } else { Ok(()) }
    }

    /// Adds a tag of ours, whose name the sender's does not keep.
    pub(super) fn put_own(&mut self, name: &'static str, value: &'a str) {
        if let Some((known, _)) = self.list.iter_mut().find(|(known, _)| known == name) {
            *known = format!("{EXPORTED}{name}").into();
        }
        self.list.push((name.into(), value.into()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.list.iter().map(|(name, values)| (&**name, &**values))
    }

    /// One text for these tags in any order.
    pub(super) fn key(&self) -> String {
        let mut tags: Vec<_> = self.iter().map(|(name, values)| format!("{name}:{values}")).collect();
        tags.sort_unstable();
        tags.join("|")
    }
}
