//! Starting other programs, and saying which one failed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// Runs a command to its end, its output going where ours goes.
///
/// # Errors
/// When it does not start or does not succeed; the message has the command line.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    println!("+ {}", line(command));
    let status = command.status().with_context(|| format!("{} does not start", line(command)))?;
    if !status.success() {
        bail!("{}: {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns what it wrote to standard output.
///
/// # Errors
/// As [`run`]; the message also has what the command wrote to standard error.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{} does not start", line(command)))?;
    if !output.status.success() {
        bail!("{}: {}\n{}", line(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed other than UTF-8", line(command)))
}

/// A call of cargo as from a shell: `cargo run` leaves variables that build scripts watch (ring's
/// does), and their coming and going would build half of the dependencies anew each time.
pub(crate) fn cargo() -> Command {
    as_from_a_shell(Command::new("cargo"))
}

/// A command without the variables that `cargo run` has set for us.
pub(crate) fn as_from_a_shell(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Where a program is: on `PATH`, or where Debian puts servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A command as it is typed in a shell: where it runs, what it sets, its words.
fn line(command: &Command) -> String {
    let folder = command.get_current_dir().map(|folder| format!("cd {} && ", quoted(folder.as_os_str())));
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let set = set.map(|(name, value)| format!("{}={} ", name.to_string_lossy(), quoted(value)));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(quoted).collect::<Vec<_>>().join(" ");
    folder.into_iter().chain(set).chain(std::iter::once(words)).collect()
}

/// A word as a shell reads it whole.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_command() {
        let failure = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(failure.contains("sh -c 'exit 3'") && failure.contains("status: 3"), "{failure}");
        let absent = run(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert!(absent.contains("no-such-program-here does not start"), "{absent}");
    }

    #[test]
    fn a_command_can_be_run_by_hand_as_it_is_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$WORD's\" in $(pwd)"]).current_dir("/usr").env("WORD", "two words");
        let said = line(&command);
        assert_eq!(said, "cd /usr && WORD='two words' sh -c 'echo \"$WORD'\\''s\" in $(pwd)'");
        assert_eq!(capture(Command::new("sh").args(["-c", &said])).unwrap(), "two words's in /usr\n");
    }

    #[test]
    fn captured_output_is_returned() {
        assert_eq!(capture(Command::new("printf").arg("a b")).unwrap(), "a b");
        let failure =
            capture(Command::new("sh").args(["-c", "echo why >&2; false"])).unwrap_err().to_string();
        assert!(failure.contains("why"), "{failure}");
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-here"), None);
    }
}
