//! The Debian package.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use tidegate_net::clock::monotonic;

use crate::packages::{
    MINUTE, NEXT, Packed, administrator, denial, done, is_root, is_whole, limit, package, start, stop, text,
    use_and_edit,
};

/// A root with dpkg's records of what Tidegate depends on, as this machine has it.
fn debian() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in
        ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log", "etc", "tmp"]
    {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let names = ["init-system-helpers", "libc6", "libgcc-s1", "passwd"];
    let format = "Package: ${Package}\nStatus: install ok installed\nMaintainer: nobody\n\
                  Architecture: ${Architecture}\nVersion: ${Version}\nDescription: here\n\n";
    let status =
        done(Command::new("dpkg-query").args(["--show", &format!("--showformat={format}")]).args(names));
    std::fs::write(root.path().join("var/lib/dpkg/status"), status.stdout).unwrap();
    std::fs::write(root.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    std::fs::write(root.path().join("etc/group"), "root:x:0:\n").unwrap();
    root
}

/// Runs dpkg below a root.
fn dpkg(root: &Path, arguments: &[&str]) {
    let mut command = administrator(if is_root() { "dpkg" } else { "fakeroot" });
    if !is_root() {
        command.arg("dpkg");
    }
    // Its log would else be this machine's.
    command
        .arg(format!("--root={}", root.display()))
        .arg(format!("--log={}", root.join("dpkg.log").display()));
    done(command.arg("--force-script-chrootless").args(arguments));
}

fn version(root: &Path) -> String {
    let admin = format!("--admindir={}", root.join("var/lib/dpkg").display());
    text(&done(Command::new("dpkg-query").args([&admin, "--show", "--showformat=${Version}", "tidegate"])))
}

#[test]
fn it_is_installed_started_upgraded_with_its_data_and_removed() {
    let root = debian();
    let root = root.path();
    let [now, next] =
        [Packed::once().now(), Packed::once().next()].map(|it| package(&it, "deb").display().to_string());
    let began = monotonic();
    dpkg(root, &["--install", &now]);
    let service = start(root);
    denial(service.http);
    assert!(began.elapsed() < MINUTE, "{:?} from the package to the first denial", began.elapsed());
    stop(service);
    is_whole(root);
    let users = std::fs::read_to_string(root.join("etc/passwd")).unwrap();
    let user = users.lines().find(|line| line.starts_with("tidegate:")).unwrap_or_else(|| panic!("{users}"));
    let data = std::fs::metadata(root.join("var/lib/tidegate")).unwrap();
    assert_eq!(data.mode() & 0o7777, 0o700);
    if is_root() {
        assert_eq!(user.split(':').nth(2), Some(data.uid().to_string().as_str()));
    }

    let (file, changed) = use_and_edit(root);

    dpkg(root, &["--install", &next]);
    assert_eq!(version(root), NEXT);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
    let service = start(root);
    assert_eq!(limit(&service), 7);
    stop(service);

    dpkg(root, &["--remove", "tidegate"]);
    assert!(!root.join("usr/bin/tidegate").exists());
    assert!(!root.join("usr/lib/systemd/system/tidegate.service").exists());
    assert!(file.exists() && root.join("var/lib/tidegate/control.sqlite").exists());
    dpkg(root, &["--purge", "tidegate"]);
    assert!(!root.join("etc/tidegate").exists() && !root.join("var/lib/tidegate").exists());
}

#[test]
fn its_record_names_what_it_needs_and_what_is_the_administrators() {
    let deb = package(&Packed::once().now(), "deb");
    let field = |name: &str| text(&done(Command::new("dpkg-deb").arg("--field").arg(&deb).arg(name)));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
    let control = tempfile::tempdir().unwrap();
    done(Command::new("dpkg-deb").arg("--control").arg(&deb).arg(control.path()));
    let conffiles = std::fs::read_to_string(control.path().join("conffiles")).unwrap();
    assert_eq!(conffiles, "/etc/tidegate/environment\n/etc/tidegate/tidegate.toml\n");
    for script in ["postinst", "prerm", "postrm"] {
        done(Command::new("sh").arg("-n").arg(control.path().join(script)));
    }
    let listed = text(&done(Command::new("dpkg-deb").arg("--contents").arg(&deb)));
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
}
