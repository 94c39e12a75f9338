//! The second try of tests that failed, each alone after all others.
//!
//! A machine can be so busy that a test of sockets or time fails once in a thousand runs, and a suite of 1,700 tests
//! would then fail every other day without a change. What passes at its second try is printed in the last lines and
//! kept with its first failure in `target/tests/unlucky.txt`: an unlucky test is a defect, to be mended in the next
//! change. The run fails all the same if there are more than [`MOST_UNLUCKY`] of them, or if one is a test that only
//! computes, which no machine can disturb.
//!
//! Deliberately absent: a second try for a binary that did not end, or ended without libtest's list of failures. It
//! was killed, aborted or hangs, which is no bad luck.

use std::path::Path;

use anyhow::{Context, bail};

use crate::test_binaries::{Binary, TIMED, WAITING};
use crate::test_part::{LONGEST, Ran, run};

/// Tests that may pass at their second try in one run.
const MOST_UNLUCKY: usize = 3;

/// Where first failures are kept.
const KEPT: &str = "unlucky.txt";

/// Runs what failed once more, and says what of it was bad luck.
///
/// # Errors
/// When a test fails again, or may not need a second try.
pub(crate) fn judge(failed: &[Ran], logs: &Path) -> anyhow::Result<()> {
    let kept = logs.join(KEPT);
    std::fs::write(&kept, "").with_context(|| kept.display().to_string())?;
    let (mut broken, mut unlucky) = (Vec::new(), Vec::new());
    for first in failed {
        let tests = if may_be_unlucky(&first.binary) { failures(&first.printed) } else { Vec::new() };
        if tests.is_empty() {
            broken.push(first.binary.name.clone());
        }
        for test in tests {
            let name = format!("{} {test}", first.binary.name);
            let log = logs.join("second_try.log");
            let alone = Binary { tests: vec![test.to_owned()], ..first.binary.clone() };
            let second = run(&alone, &log, LONGEST)?;
            if second.status.success() {
                unlucky.push((name, &first.printed));
            } else {
                println!("{}\n{name}: FAILED at the second try, too", second.printed);
                broken.push(name);
            }
        }
    }
    let texts = unlucky.iter().map(|(name, printed)| format!("==== {name}\n{printed}\n"));
    std::fs::write(&kept, texts.collect::<String>()).with_context(|| kept.display().to_string())?;
    for (name, _) in &unlucky {
        println!("passed at the second try: {name} (first failure: {})", kept.display());
    }
    if !broken.is_empty() {
        bail!("{} failed: {}", broken.len(), broken.join(", "));
    }
    if unlucky.len() > MOST_UNLUCKY {
        bail!("{} tests passed at the second try only, of {MOST_UNLUCKY} at most", unlucky.len());
    }
    Ok(())
}

/// Whether its tests wait for sockets, stores, processes or the clock.
fn may_be_unlucky(binary: &Binary) -> bool {
    let (krate, test) = binary.crate_and_test();
    WAITING.contains(&krate) || TIMED.contains(&test)
}

/// The tests that failed, by libtest's list at the end. The lines before it may be torn by what servers print.
fn failures(printed: &str) -> Vec<&str> {
    let list = printed.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    list.lines().map_while(|line| line.strip_prefix("    ")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_binaries::script;

    /// What libtest prints of a run in which `a` and `m::b` failed.
    const FAILED: &str = "running 3 tests\n\nfailures:\n\n---- a stdout ----\nfailures:\n    words\n\n\nfailures:\n    a\n    m::b\n\ntest result: FAILED. 1 passed; 2 failed";

    /// The verdict on a binary of which the tests `a` and `m::b` failed, and on each of which `again` is run.
    fn verdict(name: &str, again: &str, folder: &Path) -> Result<String, String> {
        let text = format!(
            "if [ $# = 0 ]; then printf '{FAILED}'; exit 101; fi\n[ \"$1\" = --exact ] || exit 9\n{again}"
        );
        let binary = script(name, &text, folder);
        let first = run(&binary, &folder.join("log"), LONGEST).unwrap();
        judge(&[first], folder).map_err(|error| error.to_string())?;
        Ok(fs::read_to_string(folder.join(KEPT)).unwrap())
    }

    #[test]
    fn the_list_at_the_end_names_what_failed() {
        assert_eq!(failures(FAILED), ["a", "m::b"]);
        assert!(failures("killed in the middle").is_empty());
    }

    #[test]
    fn a_test_that_passes_alone_is_kept_with_its_first_failure() {
        let folder = tempfile::tempdir().unwrap();
        let kept = verdict("net/fault_32_malformed", "exit 0", folder.path()).unwrap();
        assert!(kept.contains("==== net/fault_32_malformed a\n") && kept.contains(" m::b\n"), "{kept}");
        assert!(kept.contains("---- a stdout ----"), "{kept}");
    }

    #[test]
    fn a_test_that_fails_twice_fails_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let failed = verdict("tester/load_truth", "[ \"$2\" = a ]", folder.path()).unwrap_err();
        assert_eq!(failed, "1 failed: tester/load_truth m::b");
    }

    #[test]
    fn a_test_that_only_computes_has_no_second_try() {
        let folder = tempfile::tempdir().unwrap();
        let failed = verdict("wire/lib", "exit 0", folder.path()).unwrap_err();
        assert_eq!(failed, "1 failed: wire/lib");
    }

    #[test]
    fn more_than_three_of_them_fail_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[ $# = 2 ] || {{ printf '{FAILED}'; exit 101; }}");
        let binary = script("net/lib", &text, folder.path());
        let first = || run(&binary, &folder.path().join("log"), LONGEST).unwrap();
        let failed = judge(&[first(), first()], folder.path()).unwrap_err().to_string();
        assert_eq!(failed, "4 tests passed at the second try only, of 3 at most");
    }

    #[test]
    fn a_binary_that_ended_without_a_list_has_no_second_try() {
        let folder = tempfile::tempdir().unwrap();
        let binary = script("net/lib", "[ $# = 0 ] && kill -ABRT $$", folder.path());
        let first = run(&binary, &folder.path().join("log"), LONGEST).unwrap();
        assert_eq!(judge(&[first], folder.path()).unwrap_err().to_string(), "1 failed: net/lib");
    }
}
