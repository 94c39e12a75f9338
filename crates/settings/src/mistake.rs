//! A mistake in a configuration, with its place. Every loader returns a list of them.
//!
//! A line reads `file:line:column: path: problem (accepted: what would be right)`, so editors and
//! terminals can jump to it. Values of secrets never get here.

use std::collections::HashSet;
use std::fmt;

use tidegate_algorithms::policy;

/// Most mistakes that are kept; the rest are counted.
pub const MAX_MISTAKES: usize = 1_000;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The file, at this place.
    File(Position),
    /// The environment variable of this name.
    Environment(String),
    /// The command-line flag of this name.
    Flag(String),
    /// The default.
    Default,
    /// The control store: the file is good, but does not go with what is stored.
    Stored,
}

/// A place in the file: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// One thing wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Where the value comes from.
    pub origin: Origin,
    /// The setting (`http.listen`, `policy[2].limit`); empty if the mistake is not in one.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub accepted: String,
}

/// Everything that is wrong, in the order of the file, then environment, then flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes {
    file: String,
    list: Vec<Mistake>,
    more: usize,
}

impl Mistakes {
    /// The mistakes, at most [`MAX_MISTAKES`] of them.
    #[must_use]
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// How many there are in all, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// `None` if nothing was found.
    #[must_use]
    pub fn new(file: &str, found: Found) -> Option<Self> {
        let Found { mut list, more } = found;
        list.sort();
        list.dedup();
        (!list.is_empty()).then(|| Self { file: file.to_owned(), list, more })
    }

    /// What keeps a good file from being put in force, at least one mistake.
    #[must_use]
    pub fn together(file: &str, found: Vec<policy::Mistake>, origin: impl Fn(&str) -> Origin) -> Self {
        let list =
            found.into_iter().take(MAX_MISTAKES).map(|policy::Mistake { pointer, problem, accepted }| {
                let path = path(&pointer);
                Mistake { origin: origin(&path), path, problem, accepted }
            });
        Self { file: file.to_owned(), list: list.collect(), more: 0 }
    }

    /// The one mistake that kept the file from being read at all.
    #[must_use]
    pub fn unreadable(file: &str, problem: String) -> Self {
        let origin = Origin::File(Position { line: 1, column: 1 });
        let accepted = "a readable file".to_owned();
        let list = vec![Mistake { origin, path: String::new(), problem, accepted }];
        Self { file: file.to_owned(), list, more: 0 }
    }
}

/// Mistakes as they are found: the first [`MAX_MISTAKES`] are kept, the rest counted, so that a file
/// of nothing but mistakes costs no memory.
#[derive(Debug, Default)]
pub struct Found {
    list: Vec<Mistake>,
    more: usize,
}

impl Found {
    /// Adds a mistake.
    pub fn push(&mut self, mistake: Mistake) {
        if self.list.len() < MAX_MISTAKES {
            self.list.push(mistake);
        } else {
            self.more += 1;
        }
    }

    /// Counts mistakes that nobody will see.
    pub(crate) fn skip(&mut self, count: usize) {
        self.more += count;
    }

    /// The mistakes that are kept.
    #[must_use]
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// Adds mistakes of syntax. What the checks say about the lines they are on is dropped: it is
    /// about the parser's guess, not about what was written.
    pub fn add_syntax(&mut self, syntax: Self) {
        let line = |mistake: &Mistake| match mistake.origin {
            Origin::File(position) => Some(position.line),
            _ => None,
        };
        let torn: HashSet<_> = syntax.list.iter().filter_map(line).collect();
        self.list.retain(|mistake| line(mistake).is_none_or(|line| !torn.contains(&line)));
        self.extend(syntax.list);
        self.more += syntax.more;
    }
}

impl Extend<Mistake> for Found {
    fn extend<I: IntoIterator<Item = Mistake>>(&mut self, mistakes: I) {
        mistakes.into_iter().for_each(|mistake| self.push(mistake));
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Mistake { origin, path, problem, accepted }) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            origin.describe(&self.file, out)?;
            if !path.is_empty() {
                write!(out, ": {path}")?;
            }
            write!(out, ": {problem} (accepted: {accepted})")?;
        }
        if self.more > 0 {
            write!(out, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl Origin {
    /// Writes the place for people; `file` is the file's name.
    ///
    /// # Errors
    /// When `out` takes no more.
    pub fn describe(&self, file: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Self::File(Position { line, column }) => write!(out, "{file}:{line}:{column}"),
            Self::Environment(name) => write!(out, "environment {name}"),
            Self::Flag(name) => write!(out, "flag {name}"),
            Self::Default => write!(out, "default"),
            Self::Stored => write!(out, "{file} together with the control store"),
        }
    }
}

/// `/policy/0/match/ip` as people write it: `policy[0].match.ip`.
#[must_use]
pub fn path(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        match token.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.extend(token.escape_debug()),
            Err(_) => path.extend(std::iter::once('.').chain(token.escape_debug())),
        }
    }
    path
}
