//! The RPM package. rpm runs its scripts inside the root, which has a shell, and in the place of what they call, something that
//! writes down how it was called: what is below that is Red Hat's, and is not here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::packages::{
    NEXT, Packed, administrator, done, is_root, is_whole, limit, package, start, stop, text, use_and_edit,
};

/// Runs rpm below a root, where nothing else is installed.
fn rpm(root: &Path, arguments: &[&str]) -> String {
    let mut command = administrator(if is_root() { "rpm" } else { "unshare" });
    if !is_root() {
        command.args(["--user", "--map-root-user", "rpm"]);
    }
    command.args(["--dbpath", "/var/lib/rpm", "--root"]).arg(root);
    text(&done(command.args(arguments)))
}

/// The same for what changes something; what its scripts have called. Debian's rpm refuses to where dpkg rules, unless it is told.
fn change(root: &Path, what: &str, package: &str) -> Vec<String> {
    rpm(root, &[what, "--force-debian", "--nodeps", package]);
    let called = root.join("called");
    let lines = fs::read_to_string(&called).unwrap().lines().map(str::to_owned).collect();
    fs::remove_file(called).unwrap();
    lines
}

/// A root with what scripts need: a shell with its libraries, and programs that write down how they are called.
fn system() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["dev", "run/systemd/system", "usr/bin"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let linked = text(&done(Command::new("ldd").arg("/bin/sh")));
    let files = linked.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain(["/bin/sh"]) {
        let place = root.path().join(&file[1..]);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    for (program, does) in [("getent", "[ -e /added ]"), ("useradd", ": > /added"), ("systemctl", ":")] {
        let path = root.path().join("usr/bin").join(program);
        let write = format!("echo \"{program} $*\" >> /called");
        fs::write(&path, format!("#!/bin/sh\n{write}\n{does}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    root
}

#[test]
fn it_is_installed_started_upgraded_with_its_data_and_removed() {
    let folder = system();
    let root = folder.path();
    let [now, next] =
        [Packed::once().now(), Packed::once().next()].map(|it| package(&it, "rpm").display().to_string());
    let called = change(root, "--install", &now);
    assert!(
        called[1].starts_with("useradd --system --user-group ") && called[1].ends_with(" tidegate"),
        "{called:?}"
    );
    let others = [&called[..1], &called[2..]].concat();
    let reload = "systemctl --system daemon-reload";
    assert_eq!(others, ["getent passwd tidegate", reload, "systemctl preset tidegate.service"]);
    is_whole(root);
    let (file, changed) = use_and_edit(root);

    let restarted = ["getent passwd tidegate", reload, reload, "systemctl try-restart tidegate.service"];
    assert_eq!(change(root, "--upgrade", &next), restarted);
    assert_eq!(rpm(root, &["-q", "--queryformat", "%{VERSION}", "tidegate"]), NEXT);
    assert_eq!(fs::read_to_string(&file).unwrap(), changed);
    let service = start(root);
    assert_eq!(limit(&service), 7);
    stop(service);

    assert_eq!(change(root, "--erase", "tidegate"), ["systemctl disable --now tidegate.service", reload]);
    assert!(!root.join("usr/bin/tidegate").exists());
    assert!(root.join("var/lib/tidegate/control.sqlite").exists(), "the data stays");
    assert_eq!(fs::read_to_string(root.join("etc/tidegate/tidegate.toml.rpmsave")).unwrap(), changed);
}

#[test]
fn its_record_names_what_it_needs_and_what_is_the_administrators() {
    let file = package(&Packed::once().now(), "rpm");
    let ask = |what: &str| text(&done(Command::new("rpm").args(["-qp", what]).arg(&file)));
    assert!(ask("--requires").contains("libc.so.6(GLIBC_2."), "{}", ask("--requires"));
    assert_eq!(ask("--configfiles"), "/etc/tidegate/environment\n/etc/tidegate/tidegate.toml\n");
    let owners = text(&done(
        Command::new("rpm").args(["-qp", "--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME} ]"]).arg(&file),
    ));
    assert!(owners.split_whitespace().all(|owner| owner == "root:root"), "{owners}");
}
