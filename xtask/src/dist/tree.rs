//! The tree that both kinds of packages have, as it is installed. The tarball is made of it, too.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;

use super::Dist;
use crate::chore::{capture, run};

/// Source in the repository, place in the tree, mode.
const FILES: [(&str, &str, u32); 7] = [
    ("deploy/tidegate.service", "usr/lib/systemd/system/tidegate.service", 0o644),
    ("deploy/package/sysusers.conf", "usr/lib/sysusers.d/tidegate.conf", 0o644),
    ("deploy/package/tidegate.toml", "etc/tidegate/tidegate.toml", 0o644),
    ("deploy/package/environment", "etc/tidegate/environment", 0o600),
    ("LICENSE", "usr/share/doc/tidegate/copyright", 0o644),
    ("CHANGELOG.md", "usr/share/doc/tidegate/changelog", 0o644),
    ("deploy/tidegate.socket", "usr/share/doc/tidegate/examples/tidegate.socket", 0o644),
];

/// A shell, and where it looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tidegate"),
    ("fish", "usr/share/fish/vendor_completions.d/tidegate.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_tidegate"),
];

/// Puts it together. The binary is run, for its manual and its completions.
///
/// # Errors
/// When a file is missing, or the binary does not run here.
pub(super) fn make(dist: &Dist, binary: &Path) -> anyhow::Result<PathBuf> {
    let tree = dist.to.join("tree");
    put(&tree, "usr/bin/tidegate", &fs::read(binary).with_context(|| binary.display().to_string())?, 0o755)?;
    for (source, place, mode) in FILES {
        let source = dist.source(source);
        put(&tree, place, &fs::read(&source).with_context(|| source.display().to_string())?, mode)?;
    }
    let notice = dist.to.join("NOTICE");
    let text = fs::read(&notice).with_context(|| notice.display().to_string())?;
    put(&tree, "usr/share/doc/tidegate/NOTICE", &text, 0o644)?;
    for (shell, place) in COMPLETIONS {
        let script = capture(Command::new(binary).args(["completions", shell]))?;
        put(&tree, place, script.as_bytes(), 0o644)?;
    }
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages).with_context(|| pages.display().to_string())?;
    run(Command::new(binary).arg("man-pages").arg(&pages))?;
    // -n: without name and time, so that the same page gives the same bytes.
    run(Command::new("gzip").args(["-9n", "-r"]).arg(&pages))?;
    run(Command::new("gzip").arg("-9n").arg(tree.join("usr/share/doc/tidegate/changelog")))?;
    settle(dist, &tree)?;
    Ok(tree)
}

/// Writes a file of the tree, with the folders above it.
pub(super) fn put(tree: &Path, place: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let path = tree.join(place);
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    fs::set_permissions(&path, Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Gives folders and files modes and times that do not depend on who puts them there and when.
pub(super) fn settle(dist: &Dist, folder: &Path) -> anyhow::Result<()> {
    let what = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(what)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            settle(dist, &entry.path())?;
        } else if kind.is_file() {
            // The mode of a file is its maker's; only what the umask left of manual pages is evened out.
            let mode = entry.metadata()?.permissions().mode();
            let mode = if mode & 0o077 == 0 {
                0o600
            } else if mode & 0o100 == 0 {
                0o644
            } else {
                0o755
            };
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
            set_time(dist, &entry.path())?;
        }
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755)).with_context(what)?;
    set_time(dist, folder)
}

fn set_time(dist: &Dist, path: &Path) -> anyhow::Result<()> {
    let time = UNIX_EPOCH + Duration::from_secs(dist.epoch);
    let times = FileTimes::new().set_modified(time).set_accessed(time);
    File::open(path).and_then(|file| file.set_times(times)).with_context(|| path.display().to_string())
}
