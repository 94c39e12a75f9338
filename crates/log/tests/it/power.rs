//! The power goes, on a real file system: ext4 on a loop device, shut down without its journal while lines are appended.
//!
//! ```text
//!   test ── unshare: mounts of its own ── manager ── mkfs, mount ── writer: appends and says what is acknowledged
//!                                            ^                        │ the file system is shut down: no byte more
//!                                            └── mount, open, compare <┘ gets to the device, and its fsync fails
//! ```
//!
//! What was not on the device then is gone with the kernel's memory, as when the power goes: pages of files, and
//! changes of names and lengths that the journal does not have. What the device would lose of its own cache it does not
//! show; `disk.rs` is the model for that.
//!
//! Only root may mount a device. Where there is no root, no sudo without a password, or no loop device, nothing can be
//! tested: a line that begins with `NOT TESTED` says so, which `cargo xtask test` shows. Where there are, a mount that fails
//! is a failure.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_log::{Durability, Settings};

use crate::disk::Dice;
use crate::support::{all, lines, now, open, small};

const TEST: &str = "power::fault_26_the_power_goes_on_a_real_file_system";
/// Set for the process that mounts.
const MANAGER: &str = "TIDEGATE_TEST_POWER_MANAGER";
/// Set for the process that appends.
const WRITER: &str = "TIDEGATE_TEST_POWER_WRITER";
/// As many losses as this says, instead of those that `make test` has time for.
const LOSSES: &str = "TIDEGATE_TEST_POWER_LOSSES";
const DEFAULT_LOSSES: u64 = 8;
const ACKNOWLEDGED: &str = "acknowledged ";
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

fn settings(mount: &Path) -> Settings {
    Settings { segment_bytes: 64 << 10, ..small(&mount.join("log")) }
}

/// Appends until the disk refuses. Says of lines that they are acknowledged while the power is still on: an fsync that
/// the shutdown overtakes can succeed without having written (ext4 finds the transaction that it waits for ended, as
/// if it had been committed). No process is there to see that when the power goes. Files cannot be opened any more then.
fn write(mount: &Path) {
    let (log, _) = open(settings(mount));
    let file = mount.join("file");
    std::fs::write(&file, "").unwrap();
    let mut next = log.offsets(0).unwrap().end;
    let mut out = std::io::stdout();
    loop {
        let count = 1 + next % 40;
        let written = log.append(0, lines(next..next + count), Durability::Written);
        let synced = log.append(0, lines(next + count..next + 2 * count), Durability::Fsync);
        if now(written).is_err() || now(synced).is_err() || std::fs::File::open(&file).is_err() {
            return;
        }
        next += 2 * count;
        writeln!(out, "\n{ACKNOWLEDGED}{next}").unwrap();
        out.flush().unwrap();
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

fn writer(mount: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(WRITER, mount).env_remove(MANAGER);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Lets a writer append until it has acknowledged some batches more, and takes the power away. How many lines it had
/// acknowledged in all.
fn append_and_lose_power(mount: &str, batches: usize) -> u64 {
    let mut child = writer(Path::new(mount));
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut said =
        out.lines().map_while(Result::ok).filter_map(|line| line.strip_prefix(ACKNOWLEDGED)?.parse().ok());
    let before = said.nth(batches).expect("the writer appends until the power goes");
    run("python3", &["-c", SHUT_DOWN, mount]);
    // What was acknowledged before the shutdown may still be in the pipe.
    let last = said.last().unwrap_or(before);
    child.wait().unwrap();
    last
}

/// Loses power some times on one file system, in a mount namespace of its own.
fn manage(folder: &Path) {
    let losses = env::var(LOSSES).map_or(DEFAULT_LOSSES, |losses| losses.parse().unwrap());
    let (image, mount) = (folder.join("image"), folder.join("mount"));
    let (image, mount) = (image.to_str().unwrap(), mount.to_str().unwrap());
    std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    std::fs::create_dir(mount).unwrap();
    run("mkfs.ext4", &["-q", "-F", image]);
    let mut dice = Dice(losses);
    let (mut lost, mut out) = (0, std::io::stdout());
    run("mount", &["-o", "loop", image, mount]);
    for round in 0..losses {
        let acknowledged = append_and_lose_power(mount, 20 + dice.below(300));
        run("umount", &[mount]);
        run("mount", &["-o", "loop", image, mount]);
        let (log, recovery) = open(settings(Path::new(mount)));
        let found = all(&log);
        let case =
            format!("round {round}: {acknowledged} lines acknowledged, {} there, {recovery:?}", found.len());
        assert!(found.len() as u64 >= acknowledged, "{case}");
        assert!(found.iter().enumerate().all(|(at, line)| *line == (at as u64, at as u64)), "{case}");
        lost += recovery.quarantined_bytes;
        writeln!(out, "{case}").unwrap();
    }
    run("umount", &[mount]);
    writeln!(out, "{losses} losses of power; {lost} bytes were no whole lines").unwrap();
}

#[test]
fn fault_26_the_power_goes_on_a_real_file_system() {
    if let Some(mount) = env::var_os(WRITER) {
        return write(Path::new(&mount));
    }
    if let Some(folder) = env::var_os(MANAGER) {
        return manage(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut set = vec![format!("{MANAGER}={}", folder.path().display())];
    set.extend(env::var(LOSSES).map(|losses| format!("{LOSSES}={losses}")));
    println!("{}", with_mounts_of_its_own(TEST, &set));
}

/// What the words say that a command has printed, if it succeeds.
fn said(words: &[&str]) -> Option<String> {
    let output = Command::new(words[0]).args(&words[1..]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a test of this program again with `set` (`NAME=value`) in its environment, as root and with mounts that nobody else
/// sees; what it says. Where there is no root or no loop device, it says so past the harness, which hides what passes.
pub(crate) fn with_mounts_of_its_own(test: &str, set: &[String]) -> String {
    let prefixes: [&[&str]; 2] = [&[], &["sudo", "-n"]];
    let is_root = |prefix: &&[&str]| said(&[prefix, &["id", "-u"][..]].concat()).as_deref() == Some("0");
    let prefix = prefixes.into_iter().find(is_root).filter(|_| Path::new("/dev/loop-control").exists());
    let Some(prefix) = prefix else {
        let why = "it needs loop devices, and root or sudo without a password";
        let line = format!("\nNOT TESTED {test}: {why}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return String::new();
    };
    let program = env::current_exe().unwrap();
    let mut words = [prefix, &["unshare", "--mount", "env"]].concat();
    words.extend(set.iter().map(String::as_str));
    words.extend([program.to_str().unwrap(), "--exact", test, "--nocapture"]);
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    said
}
