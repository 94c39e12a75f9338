//! Names of header fields and their values: what a request must have, and what is sent.

use http::{HeaderName, HeaderValue};
use tidegate_algorithms::document::shown;

use super::part::KeyReader;

/// Longest name of a parameter that may have a credential.
const MAX_PARAMETER_NAME: usize = 64;

/// An object of field names and values.
pub(super) fn field_pairs(reader: &mut KeyReader<'_>, field: &str) -> Vec<(HeaderName, HeaderValue)> {
    let accepted = "an object of field names and their values";
    let mut pairs = Vec::new();
    let Some(value) = reader.field(field) else { return pairs };
    let Some(map) = value.as_object().filter(|map| map.len() <= reader.most_pairs(field)) else {
        reader.mistake(field, format!("is {}", shown(value)), accepted);
        return pairs;
    };
    for (name, value) in map {
        let known = HeaderName::from_bytes(name.as_bytes())
            .ok()
            .filter(|name| !crate::forwarding::fields::is_of_the_connection(name));
        let stated = value.as_str().and_then(|text| HeaderValue::from_str(text).ok());
        match (known, stated) {
            (Some(name), Some(value)) => pairs.push((name, value)),
            (None, _) => {
                let accepted = "the name of a field that is not about the connection";
                reader.mistake(field, format!("has {name:?}"), accepted);
            }
            (_, None) => {
                reader.mistake(&format!("{field}/{name}"), format!("is {}", shown(value)), "a field's value")
            }
        }
    }
    pairs
}

/// The name of a field that has no meaning of its own here.
pub(super) fn free_field(name: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let is_free = !crate::forwarding::fields::is_of_the_connection(&name)
        && ![http::header::AUTHORIZATION, http::header::HOST, http::header::COOKIE].contains(&name);
    is_free.then_some(name)
}

/// Whether a parameter of this name may have a credential. Of these letters it stands in a challenge as it is, and in a query in one
/// form.
pub(super) fn is_parameter(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_PARAMETER_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}
