//! Commands that documents show: every loop ends by itself, and no package is asked of a registry where anybody could have taken
//! its name.
//!
//! A reader who pastes `until curl ...; do` waits for ever when the port is another program's. So a loop has a list to go through:
//! mostly in a function, `soon`, that says what did not come. `while read` is allowed, since it ends with what it reads. Comments of
//! Markdown are looked at, too: a test runs their commands.

use super::{Finding, TextFile};

/// What begins a loop that need not end.
const LOOPS: [&str; 2] = ["until ", "while "];
/// Words after which a command begins, beside the beginning of a line and `;`, `&`, `|`, `(`, `{`.
const OPENERS: [&str; 3] = ["do ", "then ", "else "];
/// What asks a registry for the name that follows.
const INSTALLERS: [&str; 8] = [
    "pip install ",
    "npm install ",
    "npm i ",
    "npx ",
    "docker pull ",
    "podman pull ",
    "cargo install ",
    "uv add ",
];

/// Loops without an end, and names of registries, in a document.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    if !file.path.ends_with(".md") || file.path.starts_with("docs/decisions/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    // The language of the fence that a line is in.
    let mut fence: Option<&str> = None;
    for (number, line) in file.text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(language) = trimmed.strip_prefix("```") {
            fence = if fence.is_none() { Some(language.trim()) } else { None };
            continue;
        }
        let is_code = fence.is_none_or(|language| ["sh", "bash", "console"].contains(&language));
        if is_code && is_endless(trimmed) {
            let message = "a loop that need not end, in a page that is pasted: `for n in $(seq 100)` with `&& break`, or \
                           the function `soon` of docs/tutorials/first-limit.md";
            findings.push(Finding::at(&file.path, number, message));
        }
        if let Some(name) = asked_of_a_registry(line) {
            let message = format!(
                "`{name}` is asked of a registry, where anybody can take a name that is not published: name the file of this \
                 checkout (`target/dist/...`)"
            );
            findings.push(Finding::at(&file.path, number, message));
        }
    }
    findings
}

/// Whether a line of a shell has a loop that goes on as long as a condition does.
fn is_endless(line: &str) -> bool {
    // Prose has these words, too, and no `do` after them.
    let loops = LOOPS.iter().flat_map(|word| line.match_indices(word));
    loops.filter(|(at, _)| begins_a_command(&line[..*at])).any(|(at, word)| {
        let condition = &line[at + word.len()..];
        condition.contains("; do") && !condition.starts_with("read ") && !condition.starts_with("IFS= read ")
    })
}

fn begins_a_command(before: &str) -> bool {
    let bare = before.trim_end();
    bare.is_empty()
        || bare.ends_with([';', '&', '|', '(', '{', '$'])
        || bare.ends_with("before:")
        || OPENERS.iter().any(|word| before.ends_with(word))
}

/// Our name, where a line has a registry asked for it.
fn asked_of_a_registry(line: &str) -> Option<&str> {
    let after = INSTALLERS
        .iter()
        .flat_map(|words| line.match_indices(words).map(|(at, _)| &line[at + words.len()..]));
    after.flat_map(str::split_whitespace).find_map(|word| {
        let word = word.trim_matches(['`', '"', '\'', ',', ';', '.', ')']);
        let is_ours = word.strip_prefix('@').unwrap_or(word).starts_with("tidegate");
        // A file has a folder before it, and a file's name ends in its kind.
        let is_file = word.ends_with(".whl") || word.ends_with(".tgz") || word.ends_with(".toml");
        (is_ours && !is_file).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let file = TextFile { path: "docs/a.md".to_owned(), text: text.to_owned() };
        check(&file).into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn loops_that_need_not_end_are_found() {
        let shell = |line: &str| format!("Text.\n\n```sh\n{line}\n```\n");
        for line in [
            "until curl -sf http://127.0.0.1:4000/readyz; do sleep 1; done",
            "  while true; do ask; done",
            "for port in 1 2; do until ask $port; do :; done; done",
            "start & until ask; do :; done",
        ] {
            let findings = found(&shell(line));
            assert!(findings.len() == 1 && findings[0].0 == 4, "{line}: {findings:?}");
        }
        for line in [
            "for n in $(seq 100); do ask && break; sleep 0.2; done",
            "cat names | while read name; do ask $name; done",
            "soon 'curl -sf http://127.0.0.1:4000/readyz > ready'",
            "until_it_speaks tidegate",
        ] {
            assert_eq!(found(&shell(line)), [], "{line}");
        }
        assert_eq!(found("<!-- before: until ask; do sleep 1; done -->\n")[0].0, 1);
        assert_eq!(found("Leases wait until they come back; do not hurry, while others wait.\n"), []);
        assert_eq!(found("```rust\nwhile a { b(); do_it() }\n```\n"), []);
    }

    #[test]
    fn names_that_a_stranger_could_take_are_found() {
        for line in [
            "`pip install tidegate[otel]` first.",
            "pip install --upgrade 'tidegate'",
            "npm install express tidegate",
            "npx tidegate serve",
            "cargo install --locked tidegate",
            "docker pull tidegate/tidegate",
        ] {
            assert_eq!(found(line).len(), 1, "{line}");
        }
        for line in [
            "pip install 'target/dist/clients/python/tidegate-0.1.0-py3-none-any.whl[otel]'",
            "npm install ./clients/javascript",
            "pip install flask",
            "cargo install --locked --path crates/tidegate",
        ] {
            assert_eq!(found(line), [], "{line}");
        }
    }
}
