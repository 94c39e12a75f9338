//! Lines of the log about routes and upstreams: what a new file changes, and which documents are set aside.

use std::collections::HashMap;

use serde_json::Value;
use tidegate_control::{Kind, LayeredDocument, SetAside, difference};

/// Most lines about one change of the configuration; what is left is counted.
const MAX_LINES: usize = 32;

/// What a new file changes.
pub(super) fn file<T>(kind: Kind, before: &[LayeredDocument<T>], after: &[LayeredDocument<T>]) {
    fn by_name<T>(entries: &[LayeredDocument<T>]) -> HashMap<&str, &Value> {
        entries.iter().map(|entry| (&*entry.name, &*entry.document)).collect()
    }
    let (old, new) = (by_name(before), by_name(after));
    let mut names: Vec<&str> = old.keys().chain(new.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let changes = names
        .into_iter()
        .filter_map(|name| Some((name, difference(old.get(name).copied(), new.get(name).copied())?)));
    let mut lines = 0_usize;
    for (name, change) in changes {
        lines += 1;
        if lines <= MAX_LINES {
            tracing::info!(%kind, name, change, "changed by the file");
        }
    }
    if lines > MAX_LINES {
        tracing::info!(%kind, more = lines - MAX_LINES, "changed by the file: further ones");
    }
}

pub(super) fn set_aside<'a>(aside: impl Iterator<Item = &'a SetAside>) {
    let mut lines = 0_usize;
    for it in aside {
        lines += 1;
        if lines <= MAX_LINES {
            let mistakes: Vec<_> = it.mistakes.iter().map(ToString::to_string).collect();
            let mistakes = mistakes.join("; ");
            tracing::error!(
                kind = %it.kind, name = ?it.name, mistakes,
                "set aside: this document is not in force; mend it or delete it (GET /v1/set-aside)"
            );
        }
    }
    if lines > MAX_LINES {
        tracing::error!(more = lines - MAX_LINES, "set aside: further documents");
    }
}
