//! The machine of a measurement, since a figure without its machine says nothing.

use std::process::Command;

use crate::chore::{capture, find};

/// What a figure is of: the machine and the state of the sources.
pub(crate) struct MachineFacts {
    /// Processor, cores and memory.
    pub(crate) machine: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// As `git describe` names it, with `-dirty` where more than documents differ from it.
    pub(crate) commit: String,
}

/// Reads them.
pub(crate) fn facts() -> MachineFacts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let gib = memory.strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 20;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    MachineFacts {
        machine: format!("{cpu}, {cores} cores shared by server and load generator, {gib} GiB"),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        commit: commit(),
    }
}

/// The commit. Measurements write their results among the documents, which change nothing that is measured.
fn commit() -> String {
    let named = capture(Command::new("git").args(["describe", "--always"])).unwrap_or_default();
    let beside_documents = ["diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs"];
    let is_clean = Command::new("git").args(beside_documents).status().is_ok_and(|status| status.success());
    format!("{}{}", named.trim(), if is_clean { "" } else { "-dirty" })
}

/// Lines of a Markdown list.
pub(crate) fn describe() -> String {
    let MachineFacts { machine, kernel, commit } = facts();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    format!(
        "- {}; commit {commit}\n- {machine}, Linux {kernel}; load average at the start {load}\n- {}; {}; {}; {}\n",
        version("date", "-u").lines().next().unwrap_or_default(),
        version("rustc", "--version"),
        version("nginx", "-v"),
        version("redis-server", "--version"),
        version("wrk", "-v"),
    )
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// First line of what a program says about itself, on whichever stream.
fn version(program: &str, flag: &str) -> String {
    let output = find(program).and_then(|path| Command::new(path).arg(flag).output().ok());
    let said = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next().unwrap_or("unknown").trim();
    first.split(" Copyright").next().unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_kernel_and_the_compiler() {
        let text = describe();
        assert!(text.contains("Linux ") && text.contains("rustc "), "{text}");
    }

    #[test]
    fn a_field_is_what_follows_its_colon() {
        assert_eq!(field("a : b\nmodel name\t: X 1\n", "model name").as_deref(), Some("X 1"));
    }
}
