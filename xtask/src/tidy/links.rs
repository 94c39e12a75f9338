//! Relative links in Markdown: the file exists and the anchor is one of its headings.
//!
//! Links to other sites are not followed: a check that needs the network fails for reasons that are
//! not ours.

use std::collections::BTreeMap;

use super::dead::join;
use super::{Finding, TextFile};
use crate::markdown::Document;

/// Every link that leads nowhere. `exists` answers for a path from the repository's root.
pub(super) fn check(files: &[TextFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let markdown = files.iter().filter(|file| file.path.ends_with(".md"));
    let documents: BTreeMap<&str, Document> =
        markdown.map(|file| (file.path.as_str(), Document::new(&file.text))).collect();
    let mut findings = Vec::new();
    for (path, document) in &documents {
        for (line, target) in &document.links {
            findings.extend(dead(path, target, &documents, &exists).map(|why| Finding::at(path, *line, why)));
        }
    }
    findings
}

fn dead(
    from: &str,
    target: &str,
    documents: &BTreeMap<&str, Document>,
    exists: &impl Fn(&str) -> bool,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (_, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = target_of(from, target);
    if !exists(&path) {
        return Some(format!("the link to `{target}` is dead: there is no {path}"));
    }
    let document = documents.get(path.as_str())?;
    let missing = !anchor.is_empty() && !document.anchors.iter().any(|known| known == anchor);
    missing.then(|| {
        format!(
            "the link to `{target}` is dead: {path} has no such heading; it has #{}",
            document.anchors.join(", #")
        )
    })
}

/// The path, from the repository's root, that a relative link of the file `from` leads to.
pub(crate) fn target_of(from: &str, target: &str) -> String {
    let file = target.split('#').next().unwrap_or(target);
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    if file.is_empty() { from.to_owned() } else { join(folder, file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_files_and_dead_anchors_are_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(
                "README.md",
                "# Top\n[ok](docs/a.md#one) [ok](#top) [ok](https://example.org/x)\n[bad](docs/b.md)\n",
            ),
            file("docs/a.md", "# One\n[ok](../README.md#top)\n[bad](#two)\n[ok](../Makefile)\n"),
        ];
        let exists = |path: &str| matches!(path, "README.md" | "docs/a.md" | "Makefile");
        let found: Vec<_> = check(&files, exists).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("README.md".to_owned(), 3), ("docs/a.md".to_owned(), 3)]);
    }
}
