//! The pages of the book that have commands, run as a reader would: the files of a page are written, its blocks of `sh` run one
//! after the other in one shell, and what each prints is compared with what the page shows. `...` stands for what differs. A
//! page has a network of its own, where the usual ports are free, and processes of its own, which end with it.
//!
//! Comments before a block say what a reader does not need to be told:
//!
//! ```text
//!   <!-- file: NAME -->       the block is this file
//!   <!-- before: COMMANDS --> what the reader has done already, mostly by the functions of BEFORE and REFERENCE
//!   <!-- run by FILE: ... --> another test runs it, which has these words, too
//!   <!-- not run: REASON -->  nobody does
//! ```
//!
//! A page of [`FOLDERS`] is one story: all that it prints is on it. Other pages show what a reader looks for: what a block prints is
//! compared where it stands right beneath, and a reply of HTTP that says no fails.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::operations::{repository, text_of};

/// Before the commands of each page. nginx as root would change to a user that there is not, and PostgreSQL refuses
/// to be root: it is started where root has another number.
const BEFORE: &str = r#"
ip link set lo up
nginx() { command nginx -g 'user root;' "$@"; }
postgresql() {
  export PATH="$PATH:/usr/lib/postgresql/15/bin" PGHOST=127.0.0.1 PGUSER=postgres
  as_nobody() { unshare --user --map-user=1000 --map-group=1000 "$@"; }
  as_nobody initdb -D "$PWD/postgresql" -A trust -U postgres --no-sync > initdb.log
  as_nobody postgres -D "$PWD/postgresql" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off > postgresql.log 2>&1 &
  until pg_isready > ready; do sleep 0.1; done
}
npm_packages() {
  mkdir -p node_modules/tidegate
  echo '{"name":"tidegate"}' > node_modules/tidegate/package.json
  ln -s "$REPOSITORY"/.npm/node_modules/{express,express-rate-limit} node_modules
  "$REPOSITORY/.npm/node_modules/.bin/esbuild" "$REPOSITORY/clients/javascript/src/express-rate-limit.ts" --log-level=error --bundle \
    --platform=node --outfile=node_modules/tidegate/express-rate-limit.js
}
"#;
/// Before the commands of a page that is no story.
const REFERENCE: &str = r#"
# A reply that says no is a mistake of the page.
curl() {
  case "$1" in -*f*) ;; *) set -- --fail-with-body "$@" ;; esac
  command curl --no-progress-meter "$@"
}
# A server is there, with what the page has shown.
serve() {
  tidegate serve "$@" > serve.log 2>&1 &
  until command curl -sf http://127.0.0.1:4000/readyz > ready; do sleep 0.1; done
}
# Who reads the page leaves the program in a terminal of its own.
stays() { eval "$1() { command $1 \"\$@\" > $1.log 2>&1 & }"; }
# Who reads the page ends the program when it has said something.
until_it_speaks() {
  command "$@" > said & local program=$!
  until [ -s said ]; do sleep 0.1; done
  # One that ends by itself may be gone already.
  kill $program || :
  cat said
}
speaks() { eval "$1() { until_it_speaks $1 \"\$@\"; }"; }
# All is ended, and what was stored is gone.
ended() {
  kill $(jobs -rp) || :
  wait
  unset -f tidegate
  rm -rf tidegate-data
}
# The flags are good, and nobody answers: another exit code than that is a mistake.
nobody_answers() { eval "$1() { command $1 \"\$@\" || test \$? = 1; }"; }
# A folder of /etc that this page alone sees.
etc() {
  cp -dr /etc shown 2> unreadable || :
  mkdir -p "shown/$1"
  mount --bind shown /etc
}
"#;
/// Folders of pages that are a story each.
const FOLDERS: [&str; 3] = ["tutorials/", "migrations/", "operations/"];
/// Longest that a page may take, in seconds.
const LONGEST: &str = "120";

/// A fenced block of a page.
struct Block<'p> {
    /// What the comment before it says.
    comment: Comment<'p>,
    /// Whether nothing but blanks is between it and the block before.
    is_next: bool,
    language: &'p str,
    text: &'p str,
}

#[derive(Clone, Copy)]
enum Comment<'p> {
    None,
    File(&'p str),
    Before(&'p str),
    /// The test that runs it, as `FILE: NAME` or `FILE`.
    RunBy(&'p str),
    NotRun(&'p str),
}

impl<'p> Comment<'p> {
    /// The comment at the end of what stands before a block.
    fn at_the_end(text: &'p str) -> Self {
        let comment =
            text.trim_end().strip_suffix("-->").and_then(|text| Some(text.rsplit_once("<!-- ")?.1.trim()));
        let Some((word, rest)) = comment.and_then(|comment| comment.split_once(' ')) else {
            return Self::None;
        };
        match word {
            "file:" => Self::File(rest),
            "before:" => Self::Before(rest),
            "run" => rest.strip_prefix("by ").map_or(Self::None, Self::RunBy),
            "not" => rest.strip_prefix("run: ").map_or(Self::None, Self::NotRun),
            _ => Self::None,
        }
    }
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut pieces = page.split("```");
    let mut found = Vec::new();
    while let (Some(before), Some(block)) = (pieces.next(), pieces.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        let comment = Comment::at_the_end(before);
        found.push(Block { comment, is_next: before.trim().is_empty(), language, text });
    }
    found
}

/// Whether a text is what is shown; `...` is anything on its line, and as the last line any lines or none.
fn is_as_shown(said: &str, shown: &str) -> bool {
    let (mut said, mut shown): (Vec<_>, Vec<_>) = (said.lines().collect(), shown.lines().collect());
    if shown.last() == Some(&"...") {
        shown.pop();
        said.truncate(shown.len());
    }
    said.len() == shown.len() && said.iter().zip(shown).all(|(said, shown)| line_is_as_shown(said, shown))
}

fn line_is_as_shown(said: &str, shown: &str) -> bool {
    let Some((before, after)) = shown.split_once("...") else { return said == shown };
    said.strip_prefix(before).is_some_and(|rest| rest.ends_with(after))
}

/// Writes the files of a page; its commands, and what each block prints, where that is on the page.
fn script_of<'p>(name: &str, page: &'p str, folder: &Path) -> (String, Vec<Option<&'p str>>) {
    let is_story = FOLDERS.iter().any(|folder| name.starts_with(folder));
    let mut script = BEFORE.to_owned();
    if !is_story {
        script.push_str(REFERENCE);
    }
    let mut expected = Vec::new();
    let mut follows_commands = false;
    for Block { comment, is_next, language, text } in blocks(page) {
        let is_shown = language == "text" && follows_commands && (is_story || is_next);
        follows_commands = false;
        match comment {
            Comment::File(file) => {
                let mut made = fs::File::create_new(folder.join(file)).unwrap();
                made.write_all(text.as_bytes()).unwrap();
            }
            Comment::RunBy(_) | Comment::NotRun(_) => {}
            Comment::Before(_) | Comment::None if language == "sh" => {
                let before = if let Comment::Before(before) = comment { before } else { "" };
                script.push_str(&format!("{before}\n{text}echo --- {}\n", expected.len()));
                expected.push(is_story.then_some(""));
                follows_commands = true;
            }
            _ if is_shown => *expected.last_mut().unwrap() = Some(text),
            _ if is_story => assert_eq!(language, "console", "{name}: what is this block?"),
            _ => {}
        }
    }
    (script, expected)
}

fn run(name: &str) {
    let page = text_of(&format!("docs/{name}.md"));
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), programs.join("tidegate")).unwrap();

    let (script, expected) = script_of(name, &page, folder.path());
    assert!(!expected.is_empty(), "{name} has no commands");

    let mut command = Command::new("timeout");
    command.args(["--kill-after", "1", LONGEST, "unshare", "--map-root-user", "--net", "--mount"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", &script]);
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(variable);
        }
    }
    let root = repository(".").canonicalize().unwrap();
    let envoy = root.join(".venv/bin");
    let path = [programs.as_path(), Path::new("/usr/sbin"), Path::new("/sbin"), &envoy];
    let path = path.map(|folder| format!("{}:", folder.display())).concat() + &std::env::var("PATH").unwrap();
    let ran = command.env("PATH", path).env("REPOSITORY", root).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    let mut rest = said.as_str();
    for (number, shown) in expected.into_iter().enumerate() {
        let mark = format!("--- {number}\n");
        let part = rest.split_once(&mark);
        let (part, after) = part.unwrap_or_else(|| panic!("{name}: block {number} failed\n{said}\n{errors}"));
        let is_good = shown.is_none_or(|shown| is_as_shown(part, shown));
        let shown = shown.unwrap_or_default();
        assert!(is_good, "{name}: block {number} shows\n{shown}\nand prints\n{part}\n{errors}");
        rest = after;
    }
    assert!(ran.status.success(), "{name}: {}\n{errors}", ran.status);
}

#[test]
fn a_first_limit_denies_and_is_raised() {
    run("tutorials/first-limit");
}

#[test]
fn nginx_asks_before_each_request() {
    run("tutorials/behind-nginx");
}

#[test]
fn a_gateway_lets_in_who_has_a_key_and_limits_it_by_its_tier() {
    run("tutorials/gateway-with-keys");
}

#[test]
fn a_gateway_limits_fails_over_breaks_and_recovers() {
    run("tutorials/gateway-that-fails-over");
}

#[test]
fn three_nodes_count_together_and_go_on_without_their_store() {
    run("tutorials/three-nodes");
}

#[test]
fn three_regions_know_of_each_other_what_one_of_them_is_told() {
    run("tutorials/three-regions");
}

#[test]
fn an_edge_finds_the_nearest_backend_and_moves_clients_when_it_dies() {
    run("tutorials/edge-that-moves-clients");
}

#[test]
fn a_tester_shows_where_a_stub_stops_scaling() {
    run("tutorials/find-your-knee");
}

#[test]
fn metrics_survive_a_crash() {
    run("tutorials/metrics-that-survive");
}

#[test]
fn envoy_asks_before_each_request() {
    run("tutorials/with-envoy");
}

#[test]
fn the_edge_does_with_connections_what_haproxy_did() {
    run("migrations/haproxy");
}

#[test]
fn what_kong_was_told_is_told_to_the_gateway() {
    run("migrations/kong");
}

#[test]
fn express_rate_limit_counts_in_tidegate_as_it_did_in_memory() {
    run("migrations/express-rate-limit");
}

#[test]
fn rules_of_envoys_reference_service_are_imported() {
    run("migrations/envoy-ratelimit");
}

#[test]
fn what_is_sent_by_statsd_and_as_telegraf_sends_it_is_kept() {
    run("migrations/statsd");
}

#[test]
fn what_was_backed_up_while_a_server_ran_is_there_after_it_was_restored() {
    run("operations/backup");
}

#[test]
fn a_new_version_takes_over_and_an_old_one_leaves_its_data_alone() {
    run("operations/upgrades");
}

#[test]
fn commands_about_routes_do_what_they_say_up_to_production() {
    run("gateway");
}

#[test]
fn commands_about_the_intake_do_what_they_say() {
    run("intake");
}

#[test]
fn commands_about_the_edge_do_what_they_say() {
    run("edge");
}

#[test]
fn commands_about_policies_in_force_do_what_they_say() {
    run("layers");
}

#[test]
fn recipes_do_what_they_say() {
    run("recipes");
}

#[test]
fn single_commands_of_pages_do_what_they_say() {
    run("caddy");
    run("doctor");
    run("events");
    run("leases");
    run("nginx");
    run("saturate");
    run("scenarios");
    run("tokens");
    run("traefik");
}

/// Pages of the book, with their names as [`run`] takes them.
fn pages() -> Vec<(String, String)> {
    let summary = text_of("docs/SUMMARY.md");
    let links = summary.split("](").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    links
        .map(|link| {
            let name = link.strip_suffix(".md").unwrap();
            (name.to_owned(), text_of(&format!("docs/{link}")))
        })
        .collect()
}

#[test]
fn every_command_of_the_book_is_run_or_says_why_not() {
    let source = include_str!("pages.rs");
    for (name, page) in pages() {
        let is_run = source.contains(&format!("\n    run(\"{name}\");\n"));
        for Block { comment, language, text, .. } in blocks(&page) {
            assert!(!language.is_empty(), "{name}: a block says no language, and could be commands:\n{text}");
            let is_good = match comment {
                _ if language != "sh" => true,
                Comment::NotRun(reason) => reason.len() > 20,
                Comment::RunBy(test) => {
                    let file = test.split_once(": ").map_or(test, |(file, _)| file);
                    let words = test.rsplit_once('/').map_or(test, |(_, words)| words);
                    text_of(file).contains(&format!("{words} -->"))
                }
                Comment::None | Comment::Before(_) | Comment::File(_) => is_run,
            };
            assert!(is_good, "{name} has commands that nobody runs:\n{text}");
        }
    }
}
