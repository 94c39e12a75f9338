//! Any text gives a template or an error, and text without `{{` has no variables.

use super::text;
use tidegate_wire::http1::Text;

pub(super) fn run(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(template) = Text::parse(text) {
        assert!(text.contains("{{") || template.variables().next().is_none());
    }
}
