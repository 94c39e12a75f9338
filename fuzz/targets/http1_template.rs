//! Any text gives a template or an error, and text without `{{` has no variables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::http1::Text;

fuzz_target!(|text: &str| {
    if let Ok(template) = Text::parse(text) {
        assert!(text.contains("{{") || template.variables().next().is_none());
    }
});
