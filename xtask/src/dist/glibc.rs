//! The glibc that the binary needs, and the one that is promised.
//!
//! A binary needs the newest version of glibc that a symbol of it is marked with, and that depends on the machine that linked it:
//! on a newer distribution the same sources ask for more. Packages say what theirs needs. A release, which is built in
//! continuous integration, is refused if that is more than what is promised; elsewhere it is said.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::capture;

/// What is promised of a release: Debian 12, Ubuntu 22.04, Red Hat 9, and what is newer.
pub(super) const OLDEST: Glibc = Glibc { major: 2, minor: 34 };

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Glibc {
    /// The least that runs a binary.
    ///
    /// # Errors
    /// When the binary cannot be read or names none.
    pub(super) fn of(binary: &Path) -> anyhow::Result<Self> {
        let symbols = capture(Command::new("objdump").arg("-p").arg(binary))?;
        Self::least(&symbols).context("the binary names no version of glibc")
    }

    /// The least that has all versions of symbols which `objdump -p` lists.
    fn least(listed: &str) -> Option<Self> {
        let versions = listed.lines().filter_map(|line| {
            let version = line.split_whitespace().last()?.strip_prefix("GLIBC_")?;
            let mut parts = version.split('.').map(str::parse);
            Some(Self { major: parts.next()?.ok()?, minor: parts.next()?.ok()? })
        });
        versions.max()
    }

    /// Says that a binary needs more than is promised.
    ///
    /// # Errors
    /// When it does, and this is where releases are made.
    pub(super) fn keep_promise(self, is_release: bool) -> anyhow::Result<()> {
        if self <= OLDEST {
            return Ok(());
        }
        let said = format!("the binary needs glibc {self}, and {OLDEST} is promised: build it on Debian 12");
        if is_release {
            bail!(said);
        }
        println!("{said}, if it is for others than this machine");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_a_symbol_is_the_least_glibc() {
        let listed = "  required from libc.so.6:\n    0x069691b9 0x00 22 GLIBC_2.9\n    0x069691b9 0x00 09 GLIBC_2.34\n\
                      \x20   0x09691a75 0x00 15 GLIBC_2.2.5\n    0x0 0x00 05 GLIBC_ABI_DT_RELR\n    0x0 0x00 05 GCC_3.0\n";
        assert_eq!(Glibc::least(listed).map(|it| it.to_string()).as_deref(), Some("2.34"));
        assert_eq!(Glibc::least("nothing"), None);
    }

    #[test]
    fn a_release_needs_no_more_than_is_promised_and_the_page_says_what_that_is() {
        OLDEST.keep_promise(true).unwrap();
        let newer = Glibc { minor: OLDEST.minor + 1, ..OLDEST };
        let said = newer.keep_promise(true).unwrap_err().to_string();
        assert!(said.contains("needs glibc 2.35, and 2.34 is promised"), "{said}");
        newer.keep_promise(false).unwrap();
        let page = include_str!("../../../docs/install.md");
        assert!(page.contains(&format!("glibc {OLDEST} or later")), "docs/install.md promises another glibc");
    }
}
