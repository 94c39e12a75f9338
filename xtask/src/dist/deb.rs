//! The Debian package, by `dpkg-deb`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::glibc::Glibc;
use super::{Dist, tree};
use crate::chore::{capture, run};

/// What runs around installing.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Files that belong to the administrator once they are there.
const CONFFILES: &str = "/etc/tidegate/environment\n/etc/tidegate/tidegate.toml\n";

/// Makes `tidegate_VERSION_ARCHITECTURE.deb` of the tree.
///
/// # Errors
/// When dpkg is missing or refuses.
pub(super) fn build(dist: &Dist, packed: &Path, glibc: Glibc) -> anyhow::Result<()> {
    let architecture = capture(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let size = installed_size(packed)?;
    let control = control(&dist.version, &architecture, size, glibc);
    tree::put(packed, "DEBIAN/control", control.as_bytes(), 0o644)?;
    tree::put(packed, "DEBIAN/conffiles", CONFFILES.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let source = dist.source(&format!("deploy/package/{script}"));
        let text = fs::read(&source).with_context(|| source.display().to_string())?;
        tree::put(packed, &format!("DEBIAN/{script}"), &text, 0o755)?;
    }
    let files = "find usr -type f -print0 | sort -z | xargs -0 md5sum";
    let sums = capture(Command::new("sh").args(["-c", files]).current_dir(packed))?;
    tree::put(packed, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    tree::settle(dist, packed)?;
    let compression: &[&str] = if dist.is_quick { &["-Zgzip", "-z1"] } else { &["-Zxz"] };
    let name = format!("tidegate_{}_{architecture}.deb", dist.version);
    run(dist
        .command("dpkg-deb")
        .args(compression)
        .args(["--root-owner-group", "--build"])
        .arg(packed)
        .arg(dist.to.join(name)))
}

fn control(version: &str, architecture: &str, size: u64, glibc: Glibc) -> String {
    format!(
        "Package: tidegate\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: The authors of Tidegate <authors@tidegate.invalid>\nInstalled-Size: {size}\n\
         Depends: init-system-helpers, libc6 (>= {glibc}), libgcc-s1, passwd\nRecommends: ca-certificates\n\
         Description: rate-limit service, gateway, TCP edge and metrics intake\n \
         Limits traffic, routes it, ingests metrics, and finds where an HTTP service\n \
         stops scaling. One program with embedded defaults; several nodes count\n \
         together in Redis or PostgreSQL.\n"
    )
}

/// KiB of a tree as Debian's own tools count them: a file by its bytes, a folder as one, on whatever file system they are.
fn installed_size(tree: &Path) -> anyhow::Result<u64> {
    let mut size = 1;
    for entry in fs::read_dir(tree).with_context(|| tree.display().to_string())? {
        let entry = entry?;
        size += if entry.file_type()?.is_dir() {
            installed_size(&entry.path())?
        } else {
            entry.metadata()?.len().div_ceil(1024)
        };
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_size_that_no_file_system_decides() {
        let tree = tempfile::tempdir().unwrap();
        for (file, bytes) in [("a/b/one", 1), ("a/kib", 1024), ("a/more", 1025)] {
            tree::put(tree.path(), file, &vec![0; bytes], 0o644).unwrap();
        }
        // Three folders, and 1, 1 and 2 KiB.
        assert_eq!(installed_size(tree.path()).unwrap(), 7);
    }
}
