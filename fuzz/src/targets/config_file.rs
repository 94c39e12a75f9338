//! Any bytes give a configuration or mistakes with places, and both can be shown (fault 19).

use tidegate::config::{Environment, File, Flags, load};

pub(super) fn run(bytes: &[u8]) {
    match load(Some(File { name: "fuzz.toml", bytes }), &Environment::default(), &Flags::default()) {
        Ok(loaded) => assert!(!loaded.explain().is_empty()),
        Err(mistakes) => assert!(mistakes.count() > 0 && !mistakes.to_string().is_empty()),
    }
}
