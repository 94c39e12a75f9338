//! What `cargo xtask dist` makes, of the binary that the tests have: installed into a folder, started, brought
//! up to date, removed. Nothing of this machine is changed.
//!
//! Packages are installed below a root of their own: `dpkg` runs its scripts outside with `DPKG_ROOT`, `rpm` inside, where
//! there is a shell for them. The image is started by chroot, as its user, with the words of its configuration. Who is not root is
//! root for these tools alone: by fakeroot, or in a namespace of users.

mod deb;
mod image;
mod installers;
mod rpm;
mod tarball;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::{Tidegate, agent};
use serde_json::{Value, json};

/// What the second package is called.
const NEXT: &str = "9.9.9";

/// Within this a newcomer has got there.
const MINUTE: Duration = Duration::from_secs(60);

/// Asks as the README says until it is denied.
fn denial(http: SocketAddr) {
    let readme = include_str!("../../../../../README.md");
    let loop_of = readme.split_once("<!-- run by crates/tidegate/tests/it/readme.rs -->").unwrap().1;
    let script = loop_of.split("```").nth(1).unwrap().strip_prefix("sh\n").unwrap();
    let script = script.replace("127.0.0.1:4000", &http.to_string());
    let said = text(&done(Command::new("bash").args(["-ec", &script])));
    assert!(said.starts_with("{\"allowed\":true,\"remaining\":0}\n{\"allowed\":false,"), "{said}");
}

/// The two versions that are packed, of the same binary.
struct Packed;

impl Packed {
    /// Packs once for all tests.
    fn once() -> Self {
        static PACKED: OnceLock<()> = OnceLock::new();
        PACKED.get_or_init(|| {
            dist(&Self.now(), env!("CARGO_PKG_VERSION"));
            dist(&Self.next(), NEXT);
        });
        Self
    }

    fn now(&self) -> PathBuf {
        // Not a scratch folder, which nobody would remove after the last test.
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/now")
    }

    fn next(&self) -> PathBuf {
        self.now().with_file_name("next")
    }
}

/// Runs `cargo xtask dist`, as the build of these tests has it.
fn dist(to: &Path, version: &str) {
    done(chore("dist").args(["--version", version]).arg("--to").arg(to));
}

/// A chore of xtask that packs the binary which the tests have.
fn chore(name: &str) -> Command {
    let tidegate = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let xtask = tidegate.with_file_name("xtask");
    assert!(xtask.exists(), "{} is not there: cargo build --package xtask", xtask.display());
    let mut command = Command::new(xtask);
    command.args([name, "--quick", "--binary"]).arg(tidegate);
    // A date of its own, so that nothing depends on this repository's.
    command.env("SOURCE_DATE_EPOCH", "1795392000");
    command
}

/// The only file of this kind there.
fn package(folder: &Path, kind: &str) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut such = files.filter(|path| path.extension().is_some_and(|extension| extension == kind));
    let found = such.next().unwrap_or_else(|| panic!("no .{kind} in {}", folder.display()));
    assert_eq!(such.next(), None);
    found
}

/// Runs a command that must succeed.
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command that finds the programs of administrators.
fn administrator(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/sbin:/sbin:{path}"));
    command
}

/// Starts a program that was installed somewhere, with its ports moved and its data in a folder.
fn serve(program: &Path, data: &Path) -> Tidegate {
    let mut command = Command::new(program);
    command.arg("serve").env_clear().stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let data = data.display().to_string();
    let environment = [("TIDEGATE_DATA_DIR", data.as_str()), ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    Tidegate::spawn(tempfile::tempdir().unwrap(), command, &environment)
}

/// Starts the server that is installed below `root` as the unit there says, with its ports moved.
fn start(root: &Path) -> Tidegate {
    // Of a package, or of the administrator.
    let unit = ["usr/lib/systemd/system", "etc/systemd/system"]
        .map(|place| root.join(place).join("tidegate.service"));
    let unit = std::fs::read_to_string(unit.iter().find(|file| file.exists()).unwrap()).unwrap();
    let below = |text: &str| {
        ["/usr/bin", "/etc/tidegate", "/var/lib/tidegate"].into_iter().fold(text.to_owned(), |text, path| {
            text.replace(path, &root.join(&path[1..]).display().to_string())
        })
    };
    let line = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    let words = below(&line("ExecStart="));
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_clear().stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let (name, value) =
        below(&line("Environment=")).split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap();
    let environment = [(name.as_str(), value.as_str()), ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    Tidegate::spawn(tempfile::tempdir().unwrap(), command, &environment)
}

/// Ends it as systemd does.
fn stop(service: Tidegate) {
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
}

fn set_limit(service: &Tidegate, limit: u64) {
    let body = json!({"window_seconds": 60, "request_per_window": limit});
    let reply = agent().post(service.url("/api/v1/configure")).send_json(&body).unwrap();
    assert_eq!(reply.status(), 200);
}

fn limit(service: &Tidegate) -> u64 {
    let mut reply = agent().get(service.url("/v1/policies/default")).call().unwrap();
    reply.body_mut().read_json::<Value>().unwrap()["limit"].as_u64().unwrap()
}

/// Stores a limit of 7 and edits the configuration, as an operator does between two versions; the file and its new text.
fn use_and_edit(root: &Path) -> (PathBuf, String) {
    let service = start(root);
    set_limit(&service, 7);
    stop(service);
    let file = root.join("etc/tidegate/tidegate.toml");
    let changed = std::fs::read_to_string(&file).unwrap() + "log.level = \"debug\"\n";
    std::fs::write(&file, &changed).unwrap();
    (file, changed)
}

/// What every package must have put below `root`.
fn is_whole(root: &Path) {
    for path in [
        "usr/bin/tidegate",
        "usr/lib/systemd/system/tidegate.service",
        "usr/lib/sysusers.d/tidegate.conf",
        "usr/share/bash-completion/completions/tidegate",
        "usr/share/fish/vendor_completions.d/tidegate.fish",
        "usr/share/zsh/vendor-completions/_tidegate",
        "usr/share/man/man1/tidegate.1.gz",
        "usr/share/man/man1/tidegate-serve.1.gz",
        "usr/share/doc/tidegate/copyright",
        "usr/share/doc/tidegate/NOTICE",
    ] {
        assert!(root.join(path).is_file(), "{path}");
    }
    let mode = |path: &str| std::fs::metadata(root.join(path)).unwrap().mode() & 0o7777;
    assert_eq!([mode("usr/bin/tidegate"), mode("etc/tidegate/tidegate.toml")], [0o755, 0o644]);
    assert_eq!(mode("etc/tidegate/environment"), 0o600);
    let file = root.join("etc/tidegate/tidegate.toml");
    let checked = text(&done(Command::new(root.join("usr/bin/tidegate")).env_clear().arg("check").arg(file)));
    assert!(!checked.contains("warning"), "{checked}");
}

#[test]
fn the_same_binary_gives_the_same_packages_and_a_list_of_its_parts() {
    let now = Packed::once().now();
    let sums = |folder: &Path| std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    // `make reproduce`, but for the two builds: the last commit in two folders, all of it packed, every file compared.
    let said = text(&done(&mut chore("reproduce")));
    let said = said.split_once("the same bytes twice:\n").unwrap_or_else(|| panic!("{said}")).1;
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/reproduce");
    let sorted = |lines: &str| lines.lines().map(|line| line.trim().to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(sorted(said), sorted(&sums(&place.join("one/target/dist"))));
    std::fs::remove_dir_all(place).unwrap();
    let others = [".cdx.json", "-image.tar\n", "  tidegate\n", "  tidegate.debug\n", "  NOTICE\n"];
    for kind in [".deb", ".rpm", "-linux.tar.gz\n", ".whl", ".tgz"].into_iter().chain(others) {
        assert!(sums(&now).contains(kind), "{kind}: {}", sums(&now));
    }
    done(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&now));
    let parts: Value =
        serde_json::from_slice(&std::fs::read(now.join("tidegate.cdx.json")).unwrap()).unwrap();
    assert_eq!(parts["bomFormat"], "CycloneDX");
    assert!(parts["components"].as_array().unwrap().iter().any(|part| part["name"] == "hyper"));
}

#[test]
fn a_release_is_made_by_the_makefiles_own_targets_of_files_that_are_packed() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(repository.join(path)).unwrap();
    let (workflow, makefile) = (read(".github/workflows/release.yml"), read("Makefile"));
    tidegate_wire::yaml::read(workflow.as_bytes()).unwrap();
    let targets: Vec<_> =
        workflow.lines().filter_map(|line| line.trim().strip_prefix("run: make ")).collect();
    assert_eq!(targets, ["test", "dist"]);
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}: ")), "make {target}");
    }
    assert!(makefile.contains("if [ $@ = dist ]; then cargo xtask clients --pack; fi"));
    let now = Packed::once().now();
    let uploaded = workflow.split_whitespace().filter_map(|word| word.strip_prefix("target/dist/"));
    let uploaded: Vec<_> = uploaded.collect();
    assert!(uploaded.len() >= 7, "{uploaded:?}");
    // The clients', which their own tests pack and install, are a .gz beside the program's.
    for name in uploaded {
        match name.strip_prefix("*.") {
            Some(kind) => assert!(package(&now, kind).is_file()),
            None => assert!(now.join(name).is_file(), "{name}"),
        }
    }
}
