//! `tidegate-VERSION-ARCHITECTURE-linux.tar.gz`: for users that have no right to install, or neither dpkg nor rpm.
//!
//! One folder, of that name: the program and its licences at its top, `man/` and `completions/` below. `service/` has the unit and
//! the three files that it goes by, which commands of docs/install.md install. They stand apart, since a `tidegate.toml` beside the
//! program would make it warn at each start that it is not read.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{Dist, archive, tree};

/// Where a file of the packages' tree is in the folder. Others stay where packages have them.
const PLACES: [(&str, &str); 10] = [
    ("usr/bin/tidegate", "tidegate"),
    ("usr/share/doc/tidegate/copyright", "LICENSE"),
    ("usr/share/doc/tidegate/NOTICE", "NOTICE"),
    ("usr/lib/systemd/system/tidegate.service", "service/tidegate.service"),
    ("usr/lib/sysusers.d/tidegate.conf", "service/sysusers.conf"),
    ("etc/tidegate/tidegate.toml", "service/tidegate.toml"),
    ("etc/tidegate/environment", "service/environment"),
    ("usr/share/bash-completion/completions/tidegate", "completions/tidegate.bash"),
    ("usr/share/fish/vendor_completions.d/tidegate.fish", "completions/tidegate.fish"),
    ("usr/share/zsh/vendor-completions/_tidegate", "completions/_tidegate"),
];
/// Where the tree has the manual.
const MANUAL: &str = "usr/share/man/man1";

/// Makes it of the tree that packages have.
///
/// # Errors
/// When the tree lacks a file, or tar or gzip refuses.
pub(super) fn build(dist: &Dist, packed: &Path) -> anyhow::Result<()> {
    let name = format!("tidegate-{}-{}-linux", dist.version, std::env::consts::ARCH);
    let staged = dist.to.join("tarball");
    let manual = packed.join(MANUAL);
    let pages = fs::read_dir(&manual).with_context(|| manual.display().to_string())?;
    let mut files: Vec<(String, String)> =
        PLACES.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    for page in pages {
        let page = page?.file_name().display().to_string();
        files.push((format!("{MANUAL}/{page}"), format!("man/man1/{page}")));
    }
    for (from, to) in files {
        let source = packed.join(&from);
        let bytes = fs::read(&source).with_context(|| source.display().to_string())?;
        let mode = if to == "tidegate" { 0o755 } else { 0o644 };
        tree::put(&staged, &format!("{name}/{to}"), &bytes, mode)?;
    }
    archive::compressed(dist, &staged, &name, &dist.to.join(format!("{name}.tar.gz")))?;
    fs::remove_dir_all(&staged).context("tarball/")
}
