//! The tables and what is read are the same: ranges, defaults, and which keys mistakes list.

use super::*;
use crate::config::part::DAY;
use crate::config::{
    ROUTE_KEYS, RouteConfig, Source, UPSTREAM_KEYS, UpstreamConfig, read_route, read_upstream,
};

/// What a document is read as.
#[derive(Debug, PartialEq)]
enum ReadDocument {
    Upstream(Box<UpstreamConfig>),
    Route(Box<RouteConfig>),
}

fn read(list: &str, document: &Value) -> Result<ReadDocument, Vec<String>> {
    let read = match list {
        "upstream" => {
            read_upstream(document, "", Source::File).map(|it| ReadDocument::Upstream(Box::new(it)))
        }
        _ => read_route(document, "", Source::File).map(|it| ReadDocument::Route(Box::new(it))),
    };
    read.map_err(|mistakes| mistakes.into_iter().map(|mistake| mistake.pointer).collect())
}

/// A document in which there is a table for a key at `path`, and little else.
fn around(list: &str, path: &str) -> Value {
    let table = path.split_once('.').map_or("", |(table, _)| table);
    let mut document = match list {
        "upstream" => json!({"name": "a", "servers": [{"url": "a:1"}]}),
        _ => json!({"name": "a", "upstream": "a"}),
    };
    match table {
        "" | "servers" => {}
        "redirect" => document = json!({"name": "a", "redirect": {"location": "/"}}),
        "respond" => document = json!({"name": "a", "respond": {}}),
        "split" => document = json!({"name": "a", "split": [{"upstream": "a", "percent": 1}]}),
        "cors" => document["cors"] = json!({"origins": ["https://a.example"]}),
        "canary" => document["canary"] = json!({"upstream": "b", "percent": 1}),
        "mirror" => document["mirror"] = json!({"upstream": "b"}),
        "tls" => {
            document["servers"] = json!([{"url": "https://a:1"}]);
            document["tls"] = json!({});
        }
        "jwt" => {
            document["auth"] = json!("jwt");
            document["jwt"] = json!({"issuer": "a", "keys_url": "http://a.example/keys"});
        }
        "forward_auth" => {
            document["auth"] = json!("forward");
            document["forward_auth"] = json!({"upstream": "b"});
        }
        _ => document[table] = json!({}),
    }
    document
}

/// The same with `value` at `path`.
fn with(list: &str, path: &str, value: Value) -> Value {
    let mut document = around(list, path);
    match path.split_once('.') {
        None => document[path] = value,
        Some((table @ ("servers" | "split"), field)) => document[table][0][field] = value,
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
fn every_key_is_read_in_the_range_of_its_row() {
    for (list, keys) in [("upstream", UPSTREAM_KEYS), ("route", ROUTE_KEYS)] {
        for (path, key) in rows(keys) {
            let refused = |value: Value| {
                let found = read(list, &with(list, &path, value)).err().unwrap_or_default();
                found.iter().any(|at| at.starts_with(&pointer(&path)))
            };
            match key.shape {
                Shape::Number(least, most) => {
                    assert!(!refused(json!(least)) && !refused(json!(most)), "{list} {path}");
                    assert!(refused(json!(most + 1)), "{list} {path}");
                    assert!(least == 0 || refused(json!(least - 1)), "{list} {path}");
                }
                Shape::Percent => {
                    assert!(
                        [json!(0), json!(0.1), json!(99.9), json!(100)].into_iter().all(|it| !refused(it))
                    );
                    assert!([json!(-0.1), json!(0.25), json!(100.1), json!("1")].into_iter().all(refused));
                }
                Shape::Seconds(least, most) => {
                    assert!(!refused(json!(least)) && !refused(json!(most)), "{list} {path}");
                    assert!(refused(json!(most * 1.01)), "{list} {path}");
                    assert!(least == 0.0 || refused(json!(least / 2.0)), "{list} {path}");
                }
                Shape::Word(words) => {
                    assert!(words.iter().all(|word| !refused(json!(word))) && refused(json!("x")));
                }
                Shape::Text(_, most) => assert!(refused(json!("/".repeat(most + 1))), "{path}"),
                Shape::Texts(most, longest) | Shape::OneOrMore(most, longest) => {
                    assert!(refused(json!(vec!["A"; most + 1])), "{path}");
                    assert!(refused(json!(["A".repeat(longest + 1)])), "{path}");
                }
                Shape::Pairs(most) => {
                    let many: Map<String, Value> =
                        (0..=most).map(|n| (format!("a{n}"), json!("1"))).collect();
                    assert!(refused(json!(many)), "{path}");
                }
                Shape::Name
                | Shape::Flag
                | Shape::Table
                | Shape::Shared(_)
                | Shape::Servers(_)
                | Shape::Shares(_) => {
                    assert!(refused(json!(7)), "{list} {path}");
                }
            }
        }
    }
}

#[test]
fn the_default_of_a_row_is_what_holds_without_the_key() {
    for (list, keys) in [("upstream", UPSTREAM_KEYS), ("route", ROUTE_KEYS)] {
        for (path, key) in rows(keys) {
            // Where nothing is stated, a listener's bound holds, which is the same.
            if path == "max_header_bytes" {
                continue;
            }
            let stated = match key.shape {
                Shape::Number(..) | Shape::Seconds(..) | Shape::Flag => {
                    serde_json::from_str(key.default).ok()
                }
                Shape::Word(words) => words.contains(&key.default).then(|| json!(key.default)),
                _ => None,
            };
            let Some(stated) = stated else { continue };
            let mut document = around(list, &path);
            let without = read(list, &document);
            assert!(without.is_ok(), "{list} {path} {without:?}");
            match path.split_once('.') {
                None => document[&path] = stated,
                Some((table @ "servers", field)) => document[table][0][field] = stated,
                Some((table, field)) => document[table][field] = stated,
            }
            assert_eq!(read(list, &document), without, "{list} {path}");
        }
    }
}

/// Each key that is listed behind another one names a key of its table, and none is lost or listed twice.
#[test]
fn mistakes_list_every_key_of_a_table_once() {
    assert_eq!(names(ROUTE_KEYS, "")[18..20], ["forward_auth", "certificate"]);
    assert_eq!(names(ROUTE_KEYS, "")[42..], ["mirror", "compress", "hedge", "priority"]);
    for keys in [UPSTREAM_KEYS, ROUTE_KEYS] {
        let shared = keys.iter().filter_map(|key| match key.shape {
            Shape::Shared(shared) => Some((shared, "")),
            Shape::Table | Shape::Servers(_) | Shape::Shares(_) => Some((keys, key.path)),
            _ => None,
        });
        for (keys, table) in shared.chain([(keys, "")]) {
            let listed = names(keys, table);
            for (name, key) in members(keys, table) {
                assert_eq!(listed.iter().filter(|other| **other == name).count(), 1, "{table} {name}");
                let before = listed.iter().position(|other| *other == name).and_then(|at| at.checked_sub(1));
                assert!(
                    key.after.is_empty() || before.map(|at| listed[at]) == Some(key.after),
                    "{table} {name}"
                );
            }
        }
    }
}
