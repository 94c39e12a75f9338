//! Every mistake a document can contain: its pointer, what is said of it, what would be accepted.

use serde_json::{Value, json};
use tidegate_algorithms::policy::{MAX_MISTAKES, MAX_UNITS, Policy, parse, parse_quota};

/// The mistakes of `document`, as they read.
fn mistakes(document: &Value) -> Vec<String> {
    parse(document, "")
        .map(|_| Vec::new())
        .unwrap_or_else(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

/// A sound policy with these fields set; `null` stays `null`.
fn with(fields: Value) -> Value {
    let mut document = json!({"name": "p", "limit": 10, "window_seconds": 60});
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    document
}

#[track_caller]
fn refuses(document: &Value, expected: &[&str]) {
    assert_eq!(mistakes(document), expected, "{document}");
}

const LIMIT: &str = "accepted: a whole number from 0 to 1000000000";
const WINDOW: &str = "accepted: a whole number from 1 to 7776000";

#[test]
fn what_is_not_an_object_is_one_mistake() {
    for (document, kind) in [
        (json!(null), "null"),
        (json!([]), "a list"),
        (json!(1), "a number"),
        (json!("p"), "a string"),
        (json!(true), "a boolean"),
    ] {
        refuses(&document, &[&format!("the document is {kind} (accepted: an object)")]);
    }
}

#[test]
fn all_mistakes_are_reported_at_once_and_in_order() {
    let document = json!({
        "name": "Bad Name", "match": {"method": 7}, "key": ["client_id", 9], "mode": "loud",
        "on_store_failure": 1, "algorithm": "magic", "limit": -1, "window_seconds": 0, "burst": 0,
        "lease_seconds": 0, "period": "year", "time_zone": "Mars/Olympus", "a/b~c": 1, "rate": 5,
    });
    let known = "name, match, key, mode, on_store_failure, replaces, tiers, algorithm, limit, window_seconds, burst, lease_seconds, period, time_zone";
    refuses(
        &document,
        &[
            &format!("/a~1b~0c is not a known key (accepted: {known})"),
            &format!("/rate is not a known key (accepted: {known})"),
            "/name is \"Bad Name\" (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter)",
            "/match/method is 7 (accepted: a string of up to 512 bytes, or a list of them)",
            "/key/1 is 9 (accepted: a string of 1 to 64 bytes)",
            "/mode is \"loud\" (accepted: \"enforce\", \"shadow\")",
            "/on_store_failure is 1 (accepted: \"local\", \"open\", \"closed\")",
            "/algorithm is \"magic\" (accepted: \"token_bucket\", \"leaky_bucket\", \"fixed_window\", \"sliding_log\", \"sliding_counter\", \"concurrency\", \"calendar\")",
            &format!("/limit is -1 ({LIMIT})"),
            &format!("/window_seconds is 0 ({WINDOW})"),
            "/burst is 0 (accepted: a whole number from 1 to 1000000000)",
            "/lease_seconds is 0 (accepted: a whole number from 1 to 86400)",
            "/period is \"year\" (accepted: \"day\", \"month\")",
            "/time_zone is \"Mars/Olympus\" (accepted: an IANA time zone such as \"UTC\" or \"Europe/Berlin\")",
        ],
    );
}

#[test]
fn tiers_have_names_and_numbers_of_the_policys_algorithm() {
    let names = "accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter";
    refuses(
        &with(json!({"tiers": {
            "Free": {}, "a": {"limit": -1}, "b": 7, "c": {"algorithm": "calendar", "period": "day"}, "d": {"key": []},
        }})),
        &[
            &format!("/tiers/Free is no name of a tier ({names})"),
            &format!("/tiers/a/limit is -1 ({LIMIT})"),
            "/tiers/b is a number (accepted: an object)",
            "/tiers/c/limit is missing (accepted: a whole number from 0 to 1000000000)",
            "/tiers/c/time_zone is missing (accepted: an IANA time zone such as \"UTC\" or \"Europe/Berlin\")",
            "/tiers/d/key is not a known key (accepted: algorithm, limit, window_seconds, burst, lease_seconds, period, time_zone)",
        ],
    );
    refuses(
        &with(
            json!({"tiers": {"c": {"algorithm": "calendar", "period": "day", "time_zone": "UTC", "limit": 1}}}),
        ),
        &["/tiers/c/algorithm is another than the policy's (accepted: the policy's own, or none)"],
    );
    let many: serde_json::Map<String, Value> = (0..=64).map(|n| (format!("t{n}"), json!({}))).collect();
    refuses(
        &with(json!({"tiers": many})),
        &["/tiers is an object (accepted: a table of up to 64 names and numbers)"],
    );
    refuses(
        &with(json!({"tiers": []})),
        &["/tiers is a list (accepted: a table of up to 64 names and numbers)"],
    );
}

#[test]
fn missing_numbers_are_named() {
    refuses(
        &json!({}),
        &[
            "/name is missing (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter)",
            &format!("/limit is missing ({LIMIT})"),
            &format!("/window_seconds is missing ({WINDOW})"),
        ],
    );
    refuses(
        &json!({"name": "p", "algorithm": "calendar", "limit": 1}),
        &[
            "/period is missing (accepted: \"day\", \"month\")",
            "/time_zone is missing (accepted: an IANA time zone such as \"UTC\" or \"Europe/Berlin\")",
        ],
    );
    refuses(&json!({"name": "p", "algorithm": "concurrency"}), &[&format!("/limit is missing ({LIMIT})")]);
}

#[test]
fn names_are_short_and_plain() {
    for name in ["", "A", "9lives", "-x", "a b", "\u{e4}", "a\r\nb", &"a".repeat(65)] {
        let found = mistakes(&with(json!({"name": name})));
        assert_eq!(found.len(), 1, "{name:?}");
        assert!(found[0].starts_with("/name is \""), "{found:?}");
        assert!(!found[0].contains('\n'), "escaped: {found:?}");
    }
    for name in ["a", "per-client_2.burst", &"a".repeat(64)] {
        assert!(parse(&with(json!({"name": name})), "").is_ok(), "{name}");
    }
}

#[test]
fn patterns_are_strings_or_short_lists_of_them() {
    let text = "(accepted: a string of up to 512 bytes, or a list of them)";
    let object = "(accepted: an object of up to 16 attributes)";
    let list = "(accepted: a string, or a list of 1 to 64)";
    let many: serde_json::Map<_, _> = (0..17).map(|n| (format!("a{n}"), json!("*"))).collect();
    let long = "x".repeat(513);
    for (matches, expected) in [
        (json!("GET"), format!("/match is \"GET\" {object}")),
        (json!(null), format!("/match is null {object}")),
        (json!(["method"]), format!("/match is a list {object}")),
        (json!(many), format!("/match has 17 attributes {object}")),
        (json!({"method": null}), format!("/match/method is null {text}")),
        (
            json!({"method": {"not": "GET"}}),
            "/match/method/not is \"GET\" (accepted: a list of 1 to 256)".to_owned(),
        ),
        (json!({"method": {}}), "/match/method is empty (accepted: like, not, or both)".to_owned()),
        (
            json!({"method": {"is": 1, "like": "*"}}),
            "/match/method/is is not a known key (accepted: like, not)".to_owned(),
        ),
        (json!({"method": {"like": 5}}), format!("/match/method/like is 5 {text}")),
        (
            json!({"method": {"not": []}}),
            "/match/method/not has 0 alternatives (accepted: a string, or a list of 1 to 256)".to_owned(),
        ),
        (
            json!({"method": {"not": ["a", {"not": ["b"]}]}}),
            format!("/match/method/not/1 is an object {text}"),
        ),
        (json!({"method": []}), format!("/match/method has 0 alternatives {list}")),
        (json!({"method": vec!["GET"; 65]}), format!("/match/method has 65 alternatives {list}")),
        (json!({"method": ["GET", 5]}), format!("/match/method/1 is 5 {text}")),
        (json!({"method": [["GET"]]}), format!("/match/method/0 is a list {text}")),
        (json!({"path": long}), format!("/match/path is \"{}... {text}", &long[..63])),
        (json!({"": "x"}), "/match/ has a name of 0 bytes (accepted: a string of 1 to 64 bytes)".to_owned()),
    ] {
        refuses(&with(json!({"match": matches})), &[&expected]);
    }
}

#[test]
fn a_policy_replaces_others_and_not_itself() {
    let list = "(accepted: a list of up to 16 names of other policies)";
    for (replaces, expected) in [
        (json!("other"), format!("/replaces is \"other\" {list}")),
        (json!(["Other"]), format!("/replaces/0 is \"Other\" {list}")),
        (json!(["other", "p"]), format!("/replaces/1 is \"p\" {list}")),
        (json!(vec!["q"; 17]), format!("/replaces is a list {list}")),
    ] {
        refuses(&with(json!({"replaces": replaces})), &[&expected]);
    }
}

#[test]
fn keys_are_short_lists_of_names() {
    let list = "(accepted: a list of up to 16 names)";
    for (key, expected) in [
        (json!("client_id"), format!("/key is \"client_id\" {list}")),
        (json!(null), format!("/key is null {list}")),
        (json!(vec!["a"; 17]), format!("/key has 17 names {list}")),
        (json!(["a", ""]), "/key/1 is \"\" (accepted: a string of 1 to 64 bytes)".to_owned()),
        (json!([["a"]]), "/key/0 is a list (accepted: a string of 1 to 64 bytes)".to_owned()),
    ] {
        refuses(&with(json!({"key": key})), &[&expected]);
    }
}

#[test]
fn a_field_of_another_algorithm_is_a_mistake() {
    let base = |algorithm: &str| match algorithm {
        "concurrency" => json!({"name": "p", "algorithm": algorithm, "limit": 1}),
        "calendar" => {
            json!({"name": "p", "algorithm": algorithm, "limit": 1, "period": "day", "time_zone": "UTC"})
        }
        _ => json!({"name": "p", "algorithm": algorithm, "limit": 1, "window_seconds": 1}),
    };
    let values = [
        ("window_seconds", json!(1)),
        ("burst", json!(1)),
        ("lease_seconds", json!(1)),
        ("period", json!("day")),
        ("time_zone", json!("UTC")),
    ];
    for (algorithm, own) in [
        ("token_bucket", &["window_seconds", "burst"][..]),
        ("leaky_bucket", &["window_seconds", "burst"]),
        ("fixed_window", &["window_seconds"]),
        ("sliding_log", &["window_seconds"]),
        ("sliding_counter", &["window_seconds"]),
        ("concurrency", &["lease_seconds"]),
        ("calendar", &["period", "time_zone"]),
    ] {
        for (field, value) in &values {
            let mut document = base(algorithm);
            document[*field] = value.clone();
            if own.contains(field) {
                assert!(parse(&document, "").is_ok(), "{document}");
            } else {
                refuses(
                    &document,
                    &[&format!("/{field} has no meaning for \"{algorithm}\" (accepted: leave it out)")],
                );
            }
        }
    }
}

#[test]
fn a_pointer_starts_where_the_document_stands() {
    let found = parse(&with(json!({"limit": "10"})), "/policies/3").unwrap_err();
    assert_eq!(found[0].to_string(), format!("/policies/3/limit is \"10\" ({LIMIT})"));
}

#[test]
fn the_list_of_mistakes_is_bounded() {
    let unknown: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("x{n}"), json!(1))).collect();
    assert_eq!(mistakes(&Value::Object(unknown.clone())).len(), MAX_MISTAKES);
    let base = Policy::default_per_client().quota.spec;
    assert_eq!(parse_quota(&Value::Object(unknown), &base, "").unwrap_err().len(), MAX_MISTAKES);
}

#[test]
fn fault_14_limit_times_window_that_would_overflow_is_refused() {
    for limit in [json!(u64::MAX), json!(MAX_UNITS + 1), json!(18_446_744_073_709_551_616.0), json!(1e300)] {
        refuses(&with(json!({"limit": limit})), &[&format!("/limit is {limit} ({LIMIT})")]);
    }
    refuses(
        &with(json!({"window_seconds": u64::MAX})),
        &[&format!("/window_seconds is {} ({WINDOW})", u64::MAX)],
    );
    // Each number is in its range, their product is not.
    let bucket = |limit: u64, seconds: u64, burst: u64| {
        with(json!({"algorithm": "token_bucket", "limit": limit, "window_seconds": seconds, "burst": burst}))
    };
    refuses(
        &bucket(1, 60, 1_000_000_000),
        &[
            "/burst is 1000000000: the whole of it would take over 104 days to come back (accepted: up to 150119 at this rate)",
        ],
    );
    assert!(parse(&bucket(1, 60, 150_119), "").is_ok());
    assert!(parse(&bucket(1, 60, 150_120), "").is_err());
    refuses(
        &bucket(MAX_UNITS, 99, 1),
        &["/limit is 1000000000 (accepted: up to 990000000 per 99 s: 10000000 a second)"],
    );
    assert!(parse(&bucket(MAX_UNITS, 100, MAX_UNITS), "").is_ok());
    // A log's entries and a key's permits are bounded by what they take.
    refuses(
        &with(json!({"limit": 4_097})),
        &[
            "/limit is 4097 (accepted: a whole number from 0 to 4096, since the log keeps each; for more, sliding_counter or token_bucket)",
        ],
    );
    refuses(
        &json!({"name": "p", "algorithm": "concurrency", "limit": 10_001}),
        &["/limit is 10001 (accepted: a whole number from 0 to 10000)"],
    );
}

#[test]
fn fault_15_numbers_that_are_none_are_refused() {
    for wrong in
        [json!(-1), json!(-0.0), json!(1.5), json!(100.0), json!("100"), json!(null), json!(true), json!([1])]
    {
        let shown = if wrong.is_array() { "a list".to_owned() } else { wrong.to_string() };
        refuses(&with(json!({"limit": wrong})), &[&format!("/limit is {shown} ({LIMIT})")]);
        refuses(
            &with(json!({"window_seconds": wrong})),
            &[&format!("/window_seconds is {shown} ({WINDOW})")],
        );
    }
    refuses(&with(json!({"window_seconds": 0})), &[&format!("/window_seconds is 0 ({WINDOW})")]);
}

#[test]
fn fault_15_nan_infinity_and_1e400_never_become_a_number() {
    assert!(serde_json::from_str::<Value>(r#"{"limit": 1e400}"#).is_err(), "the JSON reader refuses it");
    assert!(toml::from_str::<Value>("limit = 1e400").is_err(), "the TOML reader refuses it");
    for wrong in ["nan", "-nan", "inf", "-inf"] {
        let text = format!(
            "name = \"p\"\nlimit = 10\nalgorithm = \"token_bucket\"\nwindow_seconds = 60\nburst = {wrong}"
        );
        let document: Value = toml::from_str(&text).unwrap();
        refuses(&document, &["/burst is null (accepted: a whole number from 1 to 1000000000)"]);
    }
}

#[test]
fn fault_15_a_limit_of_0_is_accepted_and_denies_all() {
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_counter"] {
        let policy = parse(&with(json!({"algorithm": algorithm, "limit": 0})), "").unwrap();
        assert_eq!(policy.quota.limit.quota(), 0, "{algorithm}");
    }
}
