//! Loading the configuration is total: no input makes it panic.

use proptest::prelude::*;
use tidegate::config::{Environment, File, Flags, TABLE, load};

const GOOD: &str = "store = 'memory'\n[http]\nlisten = '127.0.0.1:4000'\n[limits]\nconnections = 10\n\
    header_deadline = '5s'\n[[policy]]\nname = 'api'\nalgorithm = 'token_bucket'\nlimit = 10\n\
    window_seconds = 60\nmatch = { path = ['/a*', '/b'] }\n[[override]]\nclient_id = 'x'\npolicy = 'api'\nlimit = 1\n";

/// Either a configuration or mistakes that can be printed: anything else is a panic.
fn is_total(bytes: &[u8], environment: &Environment) -> Result<(), TestCaseError> {
    match load(Some(File { name: "t.toml", bytes }), environment, &Flags::default()) {
        Ok(loaded) => prop_assert!(!loaded.explain().is_empty()),
        Err(mistakes) => {
            prop_assert!(mistakes.count() > 0);
            for (mistake, line) in mistakes.list().iter().zip(mistakes.to_string().lines()) {
                prop_assert!(!mistake.problem.is_empty() && !mistake.accepted.is_empty(), "{}", line);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_load_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        is_total(&bytes, &Environment::default())?;
    }

    #[test]
    fn toml_like_texts_load_or_are_refused(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", "\"", "'", "\"\"\"", " ", "#", "1", "-", "nan",
                "http", "listen", "policy", "override", "limits", "admin", "token", "name", "match", "true",
                "1979-05-27T07:32:00Z", "0x", "1e999", "\\u0000", "é", "\r", "99999999999999999999999999999999999999999",
            ]),
            0..40,
        )
    ) {
        is_total(words.concat().as_bytes(), &Environment::default())?;
    }

    #[test]
    fn a_good_file_with_bytes_changed_loads_or_is_refused(
        edits in proptest::collection::vec((0..GOOD.len(), any::<u8>()), 1..4),
        cut in 0..GOOD.len(),
    ) {
        let mut bytes = GOOD.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        is_total(&bytes, &Environment::default())?;
        is_total(&GOOD.as_bytes()[..cut], &Environment::default())?;
    }

    #[test]
    fn any_environment_loads_or_is_refused(values in proptest::collection::vec(".{0,20}", TABLE.len())) {
        let pairs = TABLE.iter().map(|setting| setting.environment_name()).zip(values);
        is_total(GOOD.as_bytes(), &pairs.collect())?;
    }
}
