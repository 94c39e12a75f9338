//! Any bytes give a configuration or mistakes with places, and both can be shown (fault 19).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::config::{Environment, File, Flags, load};

fuzz_target!(|bytes: &[u8]| {
    match load(Some(File { name: "fuzz.toml", bytes }), &Environment::default(), &Flags::default()) {
        Ok(loaded) => assert!(!loaded.explain().is_empty()),
        Err(mistakes) => assert!(mistakes.count() > 0 && !mistakes.to_string().is_empty()),
    }
});
