//! TOML as the tree that YAML is read as, so that one importer reads both.

use tidegate_wire::yaml::{Finding, MAX_BYTES, Node, Position, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads a file. The parser bounds its nesting.
pub(super) fn read(bytes: &[u8]) -> Result<Node, Finding> {
    let top = Position { line: 1, column: 1 };
    if bytes.len() > MAX_BYTES {
        return Err(wrong(top, "the file is too large".to_owned(), &format!("at most {MAX_BYTES} bytes")));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| wrong(top, "the file is not text".to_owned(), "UTF-8"))?;
    let tree = TomlLines { text, begins: begins(text) };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        wrong(tree.place(at), format!("not TOML: {}", error.message()), "TOML 1.0")
    })?;
    Ok(Node { place: top, value: tree.map(table.get_ref()) })
}

fn wrong(place: Position, problem: String, accepted: &str) -> Finding {
    Finding { place, path: String::new(), problem, accepted: accepted.to_owned() }
}

/// The byte at which each line begins.
fn begins(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

struct TomlLines<'t> {
    text: &'t str,
    begins: Vec<usize>,
}

impl TomlLines<'_> {
    fn place(&self, at: usize) -> Position {
        let line = self.begins.partition_point(|begin| *begin <= at);
        let begin = self.begins.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = self.text.get(begin..at).unwrap_or_default().chars().count() + 1;
        Position { line, column }
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let text = match value.get_ref() {
            DeValue::Table(table) => {
                return Node { place: self.place(value.span().start), value: self.map(table) };
            }
            DeValue::Array(list) => {
                let members = list.iter().map(|member| self.node(member)).collect();
                return Node { place: self.place(value.span().start), value: Value::List(members) };
            }
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => {
                let decimal = i64::from_str_radix(number.as_str(), number.radix());
                decimal.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string())
            }
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(time) => time.to_string(),
        };
        Node { place: self.place(value.span().start), value: Value::Text(text) }
    }

    fn map(&self, table: &DeTable<'_>) -> Value {
        let entries = table.iter().map(|(name, value)| {
            (name.get_ref().to_string(), self.place(name.span().start), self.node(value))
        });
        Value::Map(entries.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_texts_of_yaml_and_know_their_places() {
        let node = read(b"[http.routers.app]\nrule = \"Path(`/`)\"\npriority = 0x10\ntls = {}\n").unwrap();
        let Value::Map(entries) = &node.value else { panic!("no map") };
        assert_eq!((entries[0].0.as_str(), entries[0].1.line), ("http", 1));
        let mut inner = &entries[0].2;
        for _ in 0..2 {
            let Value::Map(entries) = &inner.value else { panic!("no map") };
            inner = &entries[0].2;
        }
        let Value::Map(entries) = &inner.value else { panic!("no map") };
        let found: Vec<_> =
            entries.iter().map(|(name, place, node)| (&**name, place.line, &node.value)).collect();
        let expected = [
            ("priority", 3, &Value::Text("16".to_owned())),
            ("rule", 2, &Value::Text("Path(`/`)".to_owned())),
            ("tls", 4, &Value::Map(Vec::new())),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_mistake_has_its_line() {
        let found = read(b"a = 1\nb = ]\nc = 2\n").unwrap_err();
        assert_eq!(found.place.line, 2, "{found:?}");
        assert!(found.problem.starts_with("not TOML: "), "{found:?}");
        assert!(read(b"\xff").is_err());
    }
}
