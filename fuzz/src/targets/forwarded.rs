//! Any text is elements of `Forwarded` or none; what was read is read again from what is written of it.

use super::text;
use tidegate_wire::forwarded::read;

pub(super) fn run(bytes: &[u8]) {
    let text = text(bytes);
    let Ok(elements) = read(text) else { return };
    let mut written = Vec::new();
    for element in &elements {
        let pairs = [("for", &element.node), ("proto", &element.proto), ("host", &element.host)];
        let pair = |(name, value): (&str, &Option<std::borrow::Cow<'_, str>>)| {
            let value = value.as_ref()?.replace('\\', "\\\\").replace('"', "\\\"");
            Some(format!("{name}=\"{value}\""))
        };
        let pairs: Vec<String> = pairs.into_iter().filter_map(pair).collect();
        // One that has other pairs alone is an element, too.
        written.push(if pairs.is_empty() { "by=x".to_owned() } else { pairs.join(";") });
    }
    assert_eq!(read(&written.join(", ")).as_ref(), Ok(&elements));
}
