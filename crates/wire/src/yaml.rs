//! YAML as a tree whose every node knows its line and column, for files that others wrote.
//!
//! The parser (saphyr-parser) gives events; the tree is built here, on an explicit stack, because what
//! matters about a stranger's file is what it cannot do:
//!
//! | bound | value |
//! |---|---|
//! | nesting | [`MAX_DEPTH`], of aliases as well |
//! | nodes | [`MAX_NODES`]; an alias counts as much as what it stands for, so none multiplies |
//! | bytes | [`MAX_BYTES`] |
//!
//! Scalars stay text: which of them is a number or a boolean depends on what is expected there.
//! Refused instead of guessed: tags, keys that are not scalars, several documents. Deliberately absent:
//! merge keys (`<<` is a key like any other, so readers refuse it as unknown), and writing.
//! Reference: YAML 1.2.2.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

/// Deepest nesting of lists and maps.
pub const MAX_DEPTH: usize = 64;
/// Most nodes of a document, aliased ones as often as they are used.
pub(crate) const MAX_NODES: usize = 100_000;
/// Largest document in bytes.
pub const MAX_BYTES: usize = 4 << 20;

/// A place in a text: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// One thing wrong, or worth a warning: `problem` reads after the name of what is at `place`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where.
    pub place: Position,
    /// Which part of the document: `descriptors[2].key`; empty for the document itself.
    pub path: String,
    /// What is the matter with it.
    pub problem: String,
    /// What would be right; empty for a warning.
    pub accepted: String,
}

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins; for an alias, where what it stands for does.
    pub place: Position,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: no text at all, `~` or `null`.
    Null,
    /// A text, quotes and escapes resolved.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order written; keys may repeat.
    Map(Vec<(String, Position, Node)>),
}

/// Reads the one document of `bytes`.
///
/// # Errors
/// The first mistake of syntax, or the first bound that was passed.
pub fn read(bytes: &[u8]) -> Result<Node, Finding> {
    if bytes.len() > MAX_BYTES {
        let problem = format!("the file has {} bytes", bytes.len());
        return Err(wrong(Position { line: 1, column: 1 }, problem, format!("at most {MAX_BYTES}")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        wrong(Position { line, column }, "the file is not text", "UTF-8")
    })?;
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            wrong(place(*error.marker()), format!("not YAML: {}", error.info()), "YAML 1.2")
        })?;
        builder.take(event, place(span.start))?;
    }
    Ok(builder.root.unwrap_or(Node { place: Position { line: 1, column: 1 }, value: Value::Null }))
}

impl Value {
    /// What it is, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a scalar",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

fn place(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

fn wrong(place: Position, problem: impl Into<String>, accepted: impl Into<String>) -> Finding {
    Finding { place, path: String::new(), problem: problem.into(), accepted: accepted.into() }
}

/// A list or map whose end has not come.
struct OpenCollection {
    place: Position,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    /// Finished entries, and the key that waits for its value.
    Map(Vec<(String, Position, Node)>, Option<(String, Position)>),
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    documents: usize,
    open: Vec<OpenCollection>,
    /// Finished nodes that have an anchor.
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: Position) -> Result<(), Finding> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(wrong(place, "a second document begins", "one document"));
                }
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(wrong(place, "has a tag", "a value without a tag"));
            }
            Event::Scalar(text, style, anchor, None) => {
                let null = style == ScalarStyle::Plain && ["", "~", "null", "Null", "NULL"].contains(&&*text);
                let value = if null { Value::Null } else { Value::Text(text.into_owned()) };
                self.count(place, 1, 0)?;
                self.finish(Node { place, value }, anchor)?;
            }
            Event::SequenceStart(anchor, None) => self.begin(place, anchor, Items::List(Vec::new()))?,
            Event::MappingStart(anchor, None) => self.begin(place, anchor, Items::Map(Vec::new(), None))?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(OpenCollection { place, anchor, items }) = self.open.pop() {
                    let value = match items {
                        Items::List(items) => Value::List(items),
                        Items::Map(entries, _) => Value::Map(entries),
                    };
                    self.finish(Node { place, value }, anchor)?;
                }
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(wrong(
                        place,
                        "an alias of what it is part of",
                        "an alias of an earlier node",
                    ));
                };
                let (nodes, depth) = measure(node);
                let node = node.clone();
                self.count(place, nodes, depth)?;
                self.finish(node, 0)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn begin(&mut self, place: Position, anchor: usize, items: Items) -> Result<(), Finding> {
        self.count(place, 1, 1)?;
        if matches!(self.open.last(), Some(OpenCollection { items: Items::Map(_, None), .. })) {
            return Err(wrong(place, "a key is a list or a map", "a key that is a scalar"));
        }
        self.open.push(OpenCollection { place, anchor, items });
        Ok(())
    }

    /// Room for so many nodes of so much depth.
    fn count(&mut self, place: Position, nodes: usize, depth: usize) -> Result<(), Finding> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(wrong(
                place,
                "there are too many values",
                format!("at most {MAX_NODES}, aliased ones included"),
            ));
        }
        if self.open.len() + depth > MAX_DEPTH {
            return Err(wrong(place, "is nested too deeply", format!("at most {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Finding> {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map(entries, key)) => match (key.take(), node) {
                (Some((name, at)), node) => entries.push((name, at, node)),
                (None, Node { place, value: Value::Text(name) }) => *key = Some((name, place)),
                (None, Node { place, value: Value::Null }) => *key = Some((String::new(), place)),
                (None, Node { place, .. }) => {
                    return Err(wrong(place, "a key is a list or a map", "a key that is a scalar"));
                }
            },
        }
        Ok(())
    }
}

/// A node's number of nodes and depth. It recurses at most [`MAX_DEPTH`] times: what is measured was
/// counted when it was read.
fn measure(node: &Node) -> (usize, usize) {
    let sum = |(nodes, depth): (usize, usize), node: &Node| {
        let (more, deep) = measure(node);
        (nodes + more, depth.max(deep + 1))
    };
    match &node.value {
        Value::Null | Value::Text(_) => (1, 0),
        Value::List(items) => items.iter().fold((1, 1), sum),
        Value::Map(entries) => entries.iter().map(|(_, _, node)| node).fold((1, 1), sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: usize, column: usize, text: &str) -> Node {
        Node { place: Position { line, column }, value: Value::Text(text.to_owned()) }
    }

    #[test]
    fn every_node_knows_its_place() {
        let node = read(b"a: 1\nb:\n  - 'x: y'\n  - ~\n").unwrap();
        let list = Node {
            place: Position { line: 3, column: 3 },
            value: Value::List(vec![
                text(3, 5, "x: y"),
                Node { place: Position { line: 4, column: 5 }, value: Value::Null },
            ]),
        };
        let entries = vec![
            ("a".to_owned(), Position { line: 1, column: 1 }, text(1, 4, "1")),
            ("b".to_owned(), Position { line: 2, column: 1 }, list),
        ];
        assert_eq!(node, Node { place: Position { line: 1, column: 1 }, value: Value::Map(entries) });
        assert_eq!(read(b"").unwrap().value, Value::Null);
        assert_eq!(read(b"# nothing\n").unwrap().value, Value::Null);
    }

    #[test]
    fn an_alias_is_what_it_stands_for() {
        let node = read(b"[&a {k: v}, *a]").unwrap();
        let Value::List(items) = node.value else { unreachable!("a list was written") };
        assert_eq!(items[0], items[1]);
    }

    #[test]
    fn what_a_stranger_could_do_is_bounded_or_refused() {
        let bomb: String = (1..30).map(|n| format!("- &x{n} [*x{0}, *x{0}]\n", n - 1)).collect();
        let deep_aliases: String = (1..80).map(|n| format!("- &x{n} [*x{}]\n", n - 1)).collect();
        for (document, line, problem) in [
            (format!("- &x0 [1]\n{bomb}"), 16, "there are too many values"),
            (format!("- &x0 [1]\n{deep_aliases}"), 64, "is nested too deeply"),
            ("[".repeat(100), 1, "is nested too deeply"),
            ("- ".repeat(200), 1, "is nested too deeply"),
            ("- x\n".repeat(MAX_NODES), MAX_NODES, "there are too many values"),
            ("a: 1\n---\nb: 2\n".to_owned(), 2, "a second document begins"),
            ("- &a [*a]\n".to_owned(), 1, "an alias of what it is part of"),
            ("- 1\n- !!binary aGk=\n".to_owned(), 2, "has a tag"),
            ("[1, 2]: x\n".to_owned(), 1, "a key is a list or a map"),
            ("a: [1\nb: 2\n".to_owned(), 2, "not YAML: "),
            ("a: \"x\n".to_owned(), 1, "not YAML: "),
            ("a: *nobody\n".to_owned(), 1, "not YAML: "),
        ] {
            let found = read(document.as_bytes()).unwrap_err();
            assert!(found.problem.starts_with(problem), "{found:?} of {:.60}", document);
            assert_eq!(found.place.line, line, "{found:?} of {:.60}", document);
        }
        let found = read(b"a: 1\nb: \xff\n").unwrap_err();
        assert_eq!((found.place, &*found.problem), (Position { line: 2, column: 4 }, "the file is not text"));
        assert!(read(&vec![b' '; MAX_BYTES + 1]).is_err());
    }
}
