//! The console in Debian's Chromium, against the built binary; and that what is committed is what its sources give.
//!
//! Each scenario is a script of `console/test`, which starts the binary, opens pages and looks at them.
//! `cargo xtask console --pictures` runs those that make pictures; with `TIDEGATE_SCREENSHOTS=FOLDER` they keep theirs here, too, but
//! for the overview's, which are of ten minutes of traffic.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;
use tidegate_testkit::postgres::PostgresServer;

/// One browser at a time: two of them are slower than one after the other.
static BROWSER: Mutex<()> = Mutex::new(());

fn console() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console").canonicalize().unwrap()
}

/// Runs a script of the console where it finds its packages; what it printed.
fn node(script: &str, arguments: &[&Path]) -> String {
    node_with(script, arguments, &[])
}

/// The same with more in its environment.
fn node_with(script: &str, arguments: &[&Path], environment: &[(&str, &str)]) -> String {
    let console = console();
    let packages = console.join("../.npm/node_modules");
    assert!(
        packages.join("puppeteer-core").exists(),
        "{} is not whole: run `make setup`",
        packages.display()
    );
    match std::os::unix::fs::symlink("../.npm/node_modules", console.join("node_modules")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
    let mut command = Command::new("node");
    command.arg(console.join(script)).args(arguments).env("TIDEGATE_BIN", env!("CARGO_BIN_EXE_tidegate"));
    command.envs(environment.iter().copied());
    if let Some(folder) = std::env::var_os("TIDEGATE_SCREENSHOTS") {
        command.env("TIDEGATE_SCREENSHOTS", console.join("..").join(folder));
    }
    let ran = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{script}: {out}{errors}");
    out.into_owned()
}

fn scenario(script: &str) {
    let _alone = BROWSER.lock();
    play(script);
}

#[expect(clippy::print_stdout, reason = "figures of a run, for who asks for them with --nocapture")]
fn play(script: &str) {
    print!("{}", node(&format!("test/{script}.mjs"), &[]));
}

#[test]
fn what_is_committed_is_what_the_sources_give() {
    let built = tempfile::tempdir().unwrap();
    node("build.mjs", &[built.path()]);
    let names = |folder: &Path| {
        let mut names: Vec<_> = folder.read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let kept = console().join("dist");
    assert_eq!(names(built.path()), names(&kept));
    for name in names(&kept) {
        let same =
            std::fs::read(built.path().join(&name)).unwrap() == std::fs::read(kept.join(&name)).unwrap();
        assert!(same, "console/dist is not of these sources ({}): run `cargo xtask console`", name.display());
    }
}

#[test]
fn who_is_denied_and_who_is_near_is_listed_while_nobody_touches_the_page() {
    scenario("live");
}

#[test]
fn what_is_missing_and_what_fails_is_said_with_what_to_do() {
    scenario("words");
}

#[test]
fn a_newcomer_finds_out_why_a_client_is_denied_and_raises_its_limit() {
    scenario("newcomer");
}

#[test]
fn who_is_denied_by_more_than_its_name_is_shown_why_and_shadow_is_no_denial() {
    scenario("why");
}

#[test]
fn the_page_asks_for_nothing_beside_the_path_that_a_proxy_has_it_under() {
    scenario("prefix");
}

#[test]
fn a_candidate_is_judged_promoted_as_it_was_shown_and_dropped() {
    scenario("candidate");
}

#[test]
fn a_key_is_issued_with_its_text_shown_once_moved_to_a_tier_renewed_and_revoked() {
    scenario("keys");
}

#[test]
fn what_the_gateway_answered_is_drawn_over_time_and_told_apart() {
    scenario("analytics");
}

#[test]
fn a_chart_begins_with_what_was_before_the_page_was_opened() {
    scenario("history");
}

#[test]
fn each_certificate_is_shown_with_its_name_and_the_one_that_ends_first_is_first() {
    scenario("certificates");
}

#[test]
fn every_view_shows_what_is_there_by_day_by_night_and_on_a_telephone() {
    scenario("views");
}

#[test]
fn the_pictures_of_the_overview_are_of_one_client_that_is_denied_among_others() {
    scenario("picture");
}

#[test]
fn a_policy_is_changed_with_the_checkers_words_beside_the_field_and_put_back() {
    scenario("policies");
}

#[test]
fn fault_51_a_client_id_of_markup_is_shown_as_text() {
    scenario("markup");
}

#[test]
fn fault_74_who_is_second_to_change_a_policy_is_shown_the_difference() {
    scenario("conflict");
}

#[test]
fn fault_74_a_page_goes_on_by_itself_when_the_server_is_back() {
    scenario("restart");
}

#[test]
fn a_database_that_goes_away_is_said_where_the_health_is() {
    let _alone = BROWSER.lock();
    let postgres = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    let pid = postgres.server.pid().to_string();
    let environment = [("TIDEGATE_TEST_POSTGRES", &*url), ("TIDEGATE_TEST_POSTGRES_PID", &*pid)];
    node_with("test/database.mjs", &[], &environment);
}

#[test]
fn fault_74_a_page_asks_to_sign_in_when_its_token_is_taken_away() {
    scenario("session");
}

#[test]
fn a_report_of_the_tester_is_opened_and_what_is_none_is_refused() {
    scenario("saturation");
}

#[test]
fn fault_51_a_run_of_the_tester_is_started_cancelled_and_ends_with_the_server() {
    scenario("run");
}

#[test]
fn an_accepted_report_says_how_near_the_load_is_to_the_knee() {
    scenario("capacity");
}

#[test]
fn the_gateways_last_requests_are_shown_step_by_step() {
    scenario("traces");
}

#[test]
fn breakers_are_shown_with_the_calls_that_they_judge() {
    scenario("breakers");
}

#[test]
fn what_is_wrong_is_shown_with_its_reason() {
    scenario("health");
}

#[test]
fn each_form_shows_the_curl_that_does_the_same() {
    scenario("curls");
}

#[test]
fn a_page_that_nobody_looks_at_costs_nothing() {
    // It waits for most of its time, and may do so beside another browser.
    play("hidden");
}

#[test]
fn what_came_of_a_metric_is_drawn() {
    scenario("intake");
}

#[test]
fn fault_51_the_last_warnings_are_shown_as_text() {
    scenario("logs");
}

#[test]
fn ten_thousand_policies_are_found_and_read() {
    scenario("many");
}

#[test]
fn no_more_is_said_of_a_quantile_than_its_histogram_knows() {
    scenario("quantiles");
}

#[test]
fn a_browser_ends_with_the_scenario_that_is_killed() {
    scenario("killed");
}
