//! The tarball: what is unpacked runs where it is, and is a service by the commands of docs/install.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_net::clock::monotonic;

use crate::packages::{
    MINUTE, NEXT, Packed, denial, done, limit, package, serve, start, stop, text, use_and_edit,
};

/// The folder that a tarball has, unpacked below another one.
fn unpacked(tarball: &Path, version: &str, to: &Path) -> PathBuf {
    done(Command::new("tar").arg("-xzf").arg(tarball).arg("--directory").arg(to));
    to.join(format!("tidegate-{version}-{}-linux", std::env::consts::ARCH))
}

/// Runs commands of the page that begin so, in the folder that was unpacked, below a root; how many.
fn install(begin: &str, folder: &Path, root: &Path) -> usize {
    let page = include_str!("../../../../../docs/install.md");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with(begin)).collect();
    for line in &lines {
        let below = line.replace(" /", &format!(" {}/", root.display()));
        done(Command::new("sh").args(["-ec", &below]).current_dir(folder));
    }
    lines.len()
}

#[test]
fn it_runs_where_it_is_unpacked_and_is_installed_and_upgraded_as_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let packed = Packed::once();
    let began = monotonic();
    let version = env!("CARGO_PKG_VERSION");
    let now = unpacked(&package(&packed.now(), "gz"), version, folder.path());
    let service = serve(&now.join("tidegate"), &folder.path().join("tidegate-data"));
    denial(service.http);
    assert!(began.elapsed() < MINUTE, "{:?} from the tarball to the first denial", began.elapsed());
    stop(service);
    // A newcomer who starts it there sees no warning of a file that is the service's.
    let mut explain = Command::new(now.join("tidegate"));
    let explained = text(&done(explain.env_clear().args(["config", "explain"]).current_dir(&now)));
    assert!(!explained.contains("warning: "), "{explained}");
    for name in [
        "LICENSE",
        "NOTICE",
        "completions/_tidegate",
        "completions/tidegate.bash",
        "completions/tidegate.fish",
        "man/man1/tidegate-serve.1.gz",
        "man/man1/tidegate.1.gz",
    ] {
        assert!(now.join(name).is_file(), "{name}");
    }
    let notice = std::fs::read_to_string(now.join("NOTICE")).unwrap();
    assert!(notice.starts_with("Tidegate\n") && notice.contains("\nhyper 1."), "{}", &notice[..200]);

    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    std::fs::create_dir_all(root.join("var/lib")).unwrap();
    assert_eq!(install("install -D ", &now, root), 5);
    let checked = root.join("etc/tidegate/tidegate.toml");
    let checked =
        text(&done(Command::new(root.join("usr/bin/tidegate")).env_clear().arg("check").arg(checked)));
    assert!(!checked.contains("warning"), "{checked}");
    let (file, changed) = use_and_edit(root);

    let next = unpacked(&package(&packed.next(), "gz"), NEXT, folder.path());
    assert_eq!(install("install -D tidegate ", &next, root), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
    let service = start(root);
    assert_eq!(limit(&service), 7);
    stop(service);
}
