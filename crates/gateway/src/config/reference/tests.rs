//! The table and what is read are the same.

use super::*;
use crate::config::{Source, read_route, read_upstream};

const OWN: [(&str, &[&str]); 2] = [
    ("upstream", &["servers", "tls", "check", "breaker", "retries"]),
    (
        "route",
        &[
            "split",
            "redirect",
            "respond",
            "jwt",
            "forward_auth",
            "certificate",
            "cors",
            "maintenance",
            "request_fields",
            "response_fields",
            "breaker",
            "fallback",
            "canary",
            "mirror",
        ],
    ),
];

fn mistakes(list: &str, document: &Value) -> Vec<String> {
    let read = match list {
        "upstream" => read_upstream(document, "", Source::File).map(drop),
        _ => read_route(document, "", Source::File).map(drop),
    };
    read.err().unwrap_or_default().into_iter().map(|mistake| mistake.pointer).collect()
}

/// A document with `value` at `path`, and little else.
fn with(list: &str, path: &str, value: Value) -> Value {
    let mut document = match list {
        "upstream" => json!({"name": "a", "servers": ["a:1"]}),
        _ if path.starts_with("redirect") => json!({"name": "a", "redirect": {"location": "/"}}),
        _ if path.starts_with("respond") => json!({"name": "a", "respond": {}}),
        _ if path.starts_with("split.") => json!({"name": "a", "split": [{"upstream": "a", "percent": 1}]}),
        _ => json!({"name": "a", "upstream": "a"}),
    };
    match path.split_once('.') {
        None => document[path] = value,
        Some(("servers", field)) => {
            document["servers"][0] = json!({"url": "a:1"});
            document["servers"][0][field] = value;
        }
        Some(("split", field)) => document["split"][0][field] = value,
        Some((table, field)) => {
            document[table][field] = value;
            // The longest pause bounds the first one.
            if field == "first_open_seconds" {
                document[table]["open_seconds"] = json!(DAY);
            }
        }
    }
    document
}

/// Where a mistake in the value at `path` is reported.
fn pointer(path: &str) -> String {
    if path == "servers.url" {
        return "/servers/0".to_owned();
    }
    format!("/{}", path.replace("servers.", "servers.0.").replace("split.", "split.0.").replace('.', "/"))
}

#[test]
fn the_table_has_the_keys_that_are_read_and_their_ranges() {
    for (list, keys) in [("upstream", UPSTREAM_KEYS), ("route", ROUTE_KEYS)] {
        for key in with_breaker(keys) {
            let refused = |value: Value| {
                let found = mistakes(list, &with(list, key.path, value));
                found.iter().any(|at| at.starts_with(&pointer(key.path)))
            };
            match key.shape {
                Shape::Number(least, most) => {
                    assert!(!refused(json!(least)) && !refused(json!(most)), "{list} {}", key.path);
                    assert!(refused(json!(most + 1)), "{list} {}", key.path);
                    assert!(least == 0 || refused(json!(least - 1)), "{list} {}", key.path);
                }
                Shape::Percent => {
                    assert!(
                        [json!(0), json!(0.1), json!(99.9), json!(100)].into_iter().all(|it| !refused(it))
                    );
                    assert!([json!(-0.1), json!(0.25), json!(100.1), json!("1")].into_iter().all(refused));
                }
                Shape::Seconds(least, most) => {
                    assert!(!refused(json!(least)) && !refused(json!(most)), "{list} {}", key.path);
                    assert!(refused(json!(most * 1.01)), "{list} {}", key.path);
                    assert!(least == 0.0 || refused(json!(least / 2.0)), "{list} {}", key.path);
                }
                Shape::Word(words) => {
                    assert!(words.iter().all(|word| !refused(json!(word))) && refused(json!("x")));
                }
                Shape::Text(_, most) => assert!(refused(json!("/".repeat(most + 1))), "{}", key.path),
                Shape::Texts(most) => assert!(refused(json!(vec!["a"; most + 1])), "{}", key.path),
                Shape::OneOrMore(most) => assert!(refused(json!(vec!["A"; most + 1])), "{}", key.path),
                Shape::Pairs(most) => {
                    let many: Map<String, Value> =
                        (0..=most).map(|n| (format!("a{n}"), json!("1"))).collect();
                    assert!(refused(json!(many)), "{}", key.path);
                }
                Shape::Name | Shape::Flag | Shape::Table | Shape::Servers(_) | Shape::Shares(_) => {
                    assert!(refused(json!(7)), "{list} {}", key.path);
                }
            }
        }
    }
}

#[test]
fn no_key_that_is_read_is_missing_from_the_table() {
    for ((list, tables), keys) in OWN.iter().zip([UPSTREAM_KEYS, ROUTE_KEYS]) {
        for table in std::iter::once(&"").chain(*tables) {
            let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
            let path = format!("{prefix}no_such_key");
            let document = with(list, &path, json!(1));
            let found = match *list {
                "upstream" => read_upstream(&document, "", Source::File).map(drop),
                _ => read_route(&document, "", Source::File).map(drop),
            };
            let found = found.expect_err("an unknown key is refused");
            let unknown = found.iter().find(|it| it.pointer == pointer(&path));
            let mut read: Vec<&str> = unknown.expect("it is named").accepted.split(", ").collect();
            let own = with_breaker(keys).filter_map(|key| key.path.strip_prefix(&prefix));
            let mut stated: Vec<&str> = own.filter(|name| !name.contains('.')).collect();
            read.sort_unstable();
            stated.sort_unstable();
            assert_eq!(read, stated, "{list} {table}");
        }
    }
}
