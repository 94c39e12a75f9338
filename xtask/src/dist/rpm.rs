//! The RPM package, by `rpmbuild`.

use std::path::Path;

use super::Dist;
use crate::chore::run;

/// Makes `tidegate-VERSION-1.ARCHITECTURE.rpm` of the tree.
///
/// # Errors
/// When rpmbuild is missing or refuses.
pub(super) fn build(dist: &Dist, packed: &Path) -> anyhow::Result<()> {
    let payload = if dist.is_quick { "w1.gzdio" } else { "w19.zstdio" };
    let work = dist.to.join("rpmbuild");
    let defines = [
        format!("_topdir {}", work.display()),
        format!("_rpmdir {}", dist.to.display()),
        "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        format!("version {}", dist.version),
        format!("tree {}", packed.display()),
        format!("_binary_payload {payload}"),
        // Neither links into /usr/lib/.build-id nor a package with debug information, which is a file of its own.
        "_build_id_links none".to_owned(),
        "debug_package %{nil}".to_owned(),
        // What compresses and strips has been done.
        "__os_install_post %{nil}".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
        "_buildhost tidegate".to_owned(),
    ];
    let mut build = dist.command("rpmbuild");
    build.args(["-bb", "--quiet"]);
    for define in defines {
        build.arg("--define").arg(define);
    }
    run(build.arg(dist.source("deploy/package/tidegate.spec")))?;
    std::fs::remove_dir_all(&work).map_err(Into::into)
}
