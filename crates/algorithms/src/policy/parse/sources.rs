//! Where attributes come from: an object of names and sources.
//!
//! ```text
//!   { "client_id": { "header": "x-api-key" }, "tenant": { "path_part": 1 }, "ip": "address" }
//! ```

use serde_json::{Map, Value};

use super::NAMES;
use crate::document::{DocumentReader, Mistake, escape, shown};
use crate::policy::sources::{MAX_FIELD_NAME_BYTES, MAX_PATH_PART, Source, SourceForm, Sources};
use crate::policy::{MAX_ATTRIBUTES, MAX_NAME_BYTES};

/// Reads the sources of attributes. `forms` are those that the protocol has; `pointer` is where `value`
/// stands in its document.
///
/// # Errors
/// Every mistake found, at most [`crate::document::MAX_MISTAKES`] of them.
pub fn parse_sources(value: &Value, pointer: &str, forms: &[SourceForm]) -> Result<Sources, Vec<Mistake>> {
    let map = value.as_object();
    let names: Vec<&str> = map.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut reader = DocumentReader::new(value, pointer, &names)?;
    if names.len() > MAX_ATTRIBUTES {
        let problem = format!("has {} attributes", names.len());
        let accepted = format!("up to {MAX_ATTRIBUTES}");
        return Err(vec![Mistake { pointer: pointer.to_owned(), problem, accepted }]);
    }
    let accepted = forms.iter().map(|form| form.example()).collect::<Vec<_>>().join(", ");
    let mut list = Vec::with_capacity(names.len());
    for (name, value) in map.into_iter().flatten() {
        let field = escape(name);
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            reader.mistake(&field, format!("has a name of {} bytes", name.len()), NAMES);
        }
        match source(value, forms) {
            Some(source) => list.push((name.clone(), source)),
            None => reader.mistake(&field, format!("is {}", described(value)), accepted.as_str()),
        }
    }
    if reader.mistakes.is_empty() { Ok(Sources::new(list)) } else { Err(reader.mistakes) }
}

fn source(value: &Value, forms: &[SourceForm]) -> Option<Source> {
    let (form, source) = match value {
        Value::String(word) if word == SourceForm::Address.word() => (SourceForm::Address, Source::Address),
        Value::String(word) if word == SourceForm::TlsName.word() => (SourceForm::TlsName, Source::TlsName),
        Value::Object(map) => one_field(map)?,
        _ => return None,
    };
    forms.contains(&form).then_some(source)
}

fn one_field(map: &Map<String, Value>) -> Option<(SourceForm, Source)> {
    let mut fields = map.iter();
    let ((key, value), None) = (fields.next()?, fields.next()) else { return None };
    let token = || value.as_str().filter(|name| is_token(name)).map(str::to_owned);
    let text = || value.as_str().filter(|name| (1..=MAX_FIELD_NAME_BYTES).contains(&name.len()));
    let found = match key.as_str() {
        "header" => (SourceForm::Header, Source::Header(token()?.to_ascii_lowercase())),
        "cookie" => (SourceForm::Cookie, Source::Cookie(token()?)),
        "query" => (SourceForm::Query, Source::Query(text()?.to_owned())),
        "path_part" => {
            let part = value.as_u64().filter(|part| (1..=MAX_PATH_PART).contains(part))?;
            (SourceForm::PathPart, Source::PathPart(usize::try_from(part).ok()?))
        }
        _ => return None,
    };
    Some(found)
}

/// Whether `name` can be a field's or a cookie's name (RFC 9110, 5.6.2).
fn is_token(name: &str) -> bool {
    (1..=MAX_FIELD_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The value whole if it is a short object, which is what a source mostly is.
fn described(value: &Value) -> String {
    match value {
        Value::Object(map)
            if map.len() == 1 && map.values().all(|inner| !inner.is_object() && !inner.is_array()) =>
        {
            map.iter().map(|(key, inner)| format!("{{ {key} = {} }}", shown(inner))).collect()
        }
        other => shown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALL: [SourceForm; 6] = [
        SourceForm::Header,
        SourceForm::Cookie,
        SourceForm::Query,
        SourceForm::PathPart,
        SourceForm::Address,
        SourceForm::TlsName,
    ];

    #[test]
    fn each_form_is_read() {
        let document = json!({
            "a": {"header": "X-Api-Key"}, "b": {"cookie": "sid"}, "c": {"query": "client id"},
            "d": {"path_part": 2}, "e": "address",
        });
        let sources = parse_sources(&document, "", &ALL).unwrap();
        assert_eq!(sources.of("a"), Some(&Source::Header("x-api-key".to_owned())));
        assert_eq!(sources.of("b"), Some(&Source::Cookie("sid".to_owned())));
        assert_eq!(sources.of("c"), Some(&Source::Query("client id".to_owned())));
        assert_eq!(sources.of("d"), Some(&Source::PathPart(2)));
        assert_eq!((sources.of("e"), sources.of("f")), (Some(&Source::Address), None));
    }

    #[test]
    fn what_is_no_source_is_a_mistake_that_shows_what_would_be() {
        for wrong in [
            json!("x-api-key"),
            json!({"header": "x api"}),
            json!({"header": ""}),
            json!({"header": "x".repeat(129)}),
            json!({"header": "a", "cookie": "b"}),
            json!({}),
            json!({"path_part": 0}),
            json!({"path_part": 33}),
            json!({"colour": "red"}),
            json!(null),
            json!([1]),
        ] {
            let found = parse_sources(&json!({ "a": wrong }), "/attributes/check", &ALL).unwrap_err();
            assert_eq!((found.len(), &*found[0].pointer), (1, "/attributes/check/a"), "{wrong}");
            assert!(found[0].accepted.starts_with("{ header = \"x-api-key\" }, "), "{}", found[0]);
        }
        let found = parse_sources(&json!({"a": {"cookie": "b"}}), "", &[SourceForm::Header]).unwrap_err();
        assert_eq!(
            found[0].to_string(),
            "/a is { cookie = \"b\" } (accepted: { header = \"x-api-key\" })",
            "a form that the protocol does not have"
        );
        assert!(parse_sources(&json!([]), "", &ALL).is_err());
        let many: Map<_, _> = (0..17).map(|n| (format!("a{n}"), json!("address"))).collect();
        assert!(parse_sources(&Value::Object(many), "", &ALL).is_err());
    }
}
