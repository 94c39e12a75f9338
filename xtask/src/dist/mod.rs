//! `cargo xtask dist`: what is shipped, in `target/dist/`.
//!
//! ```text
//!   release build --split--> tidegate, tidegate.debug
//!                               |--> tree/  binary, unit, user, configuration, manual, completions --> .deb, .rpm, .tar.gz
//!                               |--> the binary as a wheel of Python and as a package of npm
//!                               `--> image/ a root with what the binary needs of this system --> -image.tar, for docker load
//!   cargo metadata -----------> tidegate.cdx.json (CycloneDX), NOTICE (licences, in all of the above)
//!   all of them --------------> SHA256SUMS
//! ```
//!
//! Debian's own `dpkg-deb` and `rpmbuild` make the packages ([decision 0181](../../../docs/decisions/0181-packages-by-the-distributions-tools.md)).
//! The same sources give the same bytes again, in any folder ([decision 0191](../../../docs/decisions/0191-the-same-sources-give-the-same-bytes.md)):
//! paths in the binary are others than this machine's (`same_anywhere`), times in it and in packages those of `SOURCE_DATE_EPOCH`, or
//! of the last commit. `reproduce.rs` tries it with all of it.
//!
//! Most of the release binary is line tables, which only a backtrace reads. The shipped binary keeps
//! the names of functions; with `tidegate.debug` beside it, a backtrace has files and lines as well. A profile
//! with `strip` would build every crate a second time, and would leave the line tables nowhere.
//!
//! The packages of the clients are not made here but by `cargo xtask clients --pack`, which `make dist` runs behind this; then
//! `clients` puts them into one file, and that into the sums.

mod archive;
mod deb;
mod glibc;
mod image;
mod installers;
mod notice;
mod reproduce;
mod rpm;
mod sbom;
mod tarball;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

pub(crate) use self::reproduce::reproduce;

use self::glibc::Glibc;
use self::sbom::LockedPackages;
use crate::chore::{capture, cargo, find, run};

/// What puts things together, looked for before the build.
const TOOLS: [&str; 8] = ["objcopy", "objdump", "gzip", "dpkg-deb", "rpmbuild", "ldd", "tar", "python3"];

/// The sums of all that is offered.
const SUMS: &str = "SHA256SUMS";
/// What the packages of the clients are as one file.
const CLIENTS: &str = "tidegate-clients.tar.gz";

/// What is made, and of what.
#[derive(Clone, Debug)]
struct Dist {
    /// The repository.
    root: PathBuf,
    /// Where everything goes.
    to: PathBuf,
    /// The version that the packages have.
    version: String,
    /// Seconds since 1970 that files in packages have as their time.
    epoch: u64,
    /// Whether packages are compressed as little as possible: for tests.
    is_quick: bool,
}

/// Builds everything.
///
/// # Errors
/// When something does not build, or a tool is missing.
pub(crate) fn dist(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let (mut dist, binary) = Dist::of(root, arguments)?;
    if let Some(missing) = TOOLS.iter().find(|tool| find(tool).is_none()) {
        bail!("{missing} is not there: `make setup` installs it");
    }
    let binary = match binary {
        Some(binary) => binary,
        None => build(root, dist.epoch)?,
    };
    if dist.to.exists() {
        std::fs::remove_dir_all(&dist.to).with_context(|| dist.to.display().to_string())?;
    }
    std::fs::create_dir_all(&dist.to).with_context(|| dist.to.display().to_string())?;
    dist.to = dist.to.canonicalize().with_context(|| dist.to.display().to_string())?;
    split(&binary, &dist.to)?;
    let shipped = dist.to.join("tidegate");
    let glibc = Glibc::of(&shipped)?;
    glibc.keep_promise(std::env::var_os("CI").is_some())?;
    let metadata = LockedPackages::of(&dist.root)?;
    notice::write(&dist, &metadata)?;
    let tree = tree::make(&dist, &shipped)?;
    // The tree of a Debian package has a folder more, so it comes last.
    rpm::build(&dist, &tree)?;
    tarball::build(&dist, &tree)?;
    installers::build(&dist, &shipped, glibc)?;
    image::folder(&dist, &shipped)?;
    archive::write(&dist)?;
    deb::build(&dist, &tree, glibc)?;
    sbom::write(&dist, &metadata)?;
    sums(&dist)
}

/// Puts the packages of the clients into one file beside the others, and that into their sums.
///
/// # Errors
/// When they have not been made, or tar or gzip refuses.
pub(crate) fn clients(root: &Path) -> anyhow::Result<()> {
    let (dist, _) = Dist::of(root, &[])?;
    archive::compressed(&dist, &dist.to, "clients", &dist.to.join(CLIENTS))?;
    sums(&dist)
}

/// The release build as it is shipped, in a folder of its own, since its flags are others than those of `cargo build`.
fn build(root: &Path, epoch: u64) -> anyhow::Result<PathBuf> {
    let target = root.join("target/dist-build");
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "tidegate"]).current_dir(root);
    // C compilers write it where a source asks for the time of its compilation, as mimalloc's does.
    build.env("SOURCE_DATE_EPOCH", epoch.to_string());
    run(same_anywhere(&mut build, root, &target))?;
    Ok(target.join("release/tidegate"))
}

/// This machine's folders whose names a build writes down, and what is written in their place: the sources, the crates and C
/// libraries from crates.io, the compiler, and what is made on the way. Of several that fit, the last one counts.
fn places(root: &Path, target: &Path) -> [(PathBuf, &'static str); 4] {
    let home = |variable: &str, folder: &str| {
        let users = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(folder);
        std::env::var_os(variable).map_or_else(users, PathBuf::from)
    };
    [
        (home("CARGO_HOME", ".cargo"), "/cargo"),
        (home("RUSTUP_HOME", ".rustup"), "/rustup"),
        (root.to_owned(), "/tidegate"),
        (target.to_owned(), "/tidegate/target"),
    ]
}

/// Has a build put other paths in the place of this machine's, so that the same sources give the same bytes in any folder
/// of any user. Flags of the environment are not asked: they would be in the bytes, too.
fn same_anywhere<'c>(build: &'c mut Command, root: &Path, target: &Path) -> &'c mut Command {
    let places = places(root, target);
    let joined = |option: &str, between: &str| {
        let flags = places.iter().map(|(from, to)| format!("{option}{}={to}", from.display()));
        flags.collect::<Vec<_>>().join(between)
    };
    build
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "0")
        // Between flags stands a byte that no path has.
        .env("CARGO_ENCODED_RUSTFLAGS", joined("--remap-path-prefix=", "\u{1f}"))
        .env("CFLAGS", joined("-ffile-prefix-map=", " "))
}

impl Dist {
    /// What the arguments ask for, and the binary that they name.
    fn of(root: &Path, arguments: &[String]) -> anyhow::Result<(Self, Option<PathBuf>)> {
        let mut dist = Self {
            root: root.to_owned(),
            to: root.join("target/dist"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: epoch(root)?,
            is_quick: false,
        };
        let mut binary = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--binary" => binary = Some(PathBuf::from(value()?)),
                "--to" => dist.to = PathBuf::from(value()?),
                "--version" => dist.version.clone_from(value()?),
                "--quick" => dist.is_quick = true,
                _ => bail!(
                    "`cargo xtask dist` takes --binary FILE, --to FOLDER, --version V, --quick, not {word}"
                ),
            }
        }
        Ok((dist, binary))
    }

    /// A command with the time that everything in packages has.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", self.epoch.to_string()).env("LC_ALL", "C").env("TZ", "UTC");
        command
    }

    /// A file of the repository.
    fn source(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit; 0 outside a repository.
fn epoch(root: &Path) -> anyhow::Result<u64> {
    if let Ok(stated) = std::env::var("SOURCE_DATE_EPOCH") {
        return stated.parse().context("SOURCE_DATE_EPOCH is a number of seconds");
    }
    let committed = capture(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
    Ok(committed.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}

/// The time that everything in packages has, in a form of `date`.
///
/// # Errors
/// When `SOURCE_DATE_EPOCH` is no number.
pub(crate) fn date(root: &Path, form: &str) -> anyhow::Result<String> {
    let time = format!("@{}", epoch(root)?);
    Ok(capture(Command::new("date").env("LC_ALL", "C").args(["-u", "-d", &time, form]))?.trim().to_owned())
}

/// Writes the program, and its debug information, into `folder`, under its own name and with `.debug` after it.
fn split(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    let binary = binary.canonicalize().with_context(|| binary.display().to_string())?;
    let name = binary.file_name().context("a program has a name")?.display().to_string();
    let debug = format!("{name}.debug");
    // In the folder, because the program is to name the other file without a path.
    let objcopy = |arguments: &[&str], to: &str| {
        run(Command::new("objcopy").args(arguments).arg(&binary).arg(to).current_dir(folder))
    };
    objcopy(&["--only-keep-debug"], &debug)?;
    objcopy(&["--strip-debug", &format!("--add-gnu-debuglink={debug}")], &name)
}

/// `SHA256SUMS` of the files that are offered, and their sizes for whoever looks on.
fn sums(dist: &Dist) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(&dist.to).with_context(|| dist.to.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != SUMS {
            println!("{}: {} kB", entry.path().display(), entry.metadata()?.len() / 1_000);
            names.push(entry.file_name());
        }
    }
    names.sort();
    let sums = capture(Command::new("sha256sum").args(&names).current_dir(&dist.to))?;
    std::fs::write(dist.to.join(SUMS), sums).context(SUMS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chore::capture;

    /// Has the C preprocessor say when it ran.
    const BUILD_SCRIPT: &str = r#"
fn main() {
    let source = std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("time.c");
    std::fs::write(&source, "__DATE__ __TIME__\n").unwrap();
    let done = std::process::Command::new("cc").args(["-E", "-P"]).arg(&source).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap().replace('"', "");
    println!("cargo::rustc-env=COMPILED={}", text.trim());
}
"#;

    /// As the workspace is: a program, a crate of ours, and one from elsewhere, which is in another folder.
    fn workspace(root: &Path) {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let package =
            |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n");
        let profile = "[workspace]\nmembers = [\"part\"]\n[profile.release]\ndebug = \"line-tables-only\"\n";
        write(
            "Cargo.toml",
            &format!("{}[dependencies]\npart = {{ path = \"part\" }}\n{profile}", package("tidegate")),
        );
        write("part/Cargo.toml", &package("part"));
        write(
            "part/src/lib.rs",
            "#[inline(never)]\npub fn place() -> &'static str {\n    std::panic::Location::caller().file()\n}\n",
        );
        write(
            "src/main.rs",
            "fn main() {\n    println!(\"{} {} {}\", part::place(), file!(), COMPILED);\n}\n\
                              const COMPILED: &str = env!(\"COMPILED\");\n",
        );
        // As the build script of a crate around C does.
        write("build.rs", BUILD_SCRIPT);
        run(cargo().args(["generate-lockfile", "--offline"]).current_dir(root)).unwrap();
    }

    #[test]
    fn the_same_sources_give_the_same_bytes_in_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let programs = ["one", "another/further/down"].map(|name| {
            let root = folder.path().join(name);
            workspace(&root);
            std::fs::read(build(&root, 1_000_000_000).unwrap()).unwrap()
        });
        assert!(programs[0] == programs[1], "paths or times are in the program: {:?}", folder.path());
        let has = |text: &[u8]| programs[0].windows(text.len()).any(|bytes| bytes == text);
        assert!(has(b"Sep  9 2001 01:46:40"), "the time that C code was compiled at");
        let here = folder.path().display().to_string();
        assert!(!programs[0].windows(here.len()).any(|bytes| bytes == here.as_bytes()));
    }

    #[test]
    fn a_shipped_program_is_small_and_its_lines_are_in_the_file_beside() {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("lines.rs"), folder.path().join("built/lines"));
        let dist = folder.path().join("dist");
        let program = "#[inline(never)]\nfn a_name_to_find() {\n    \
                       println!(\"{}\", std::backtrace::Backtrace::force_capture());\n}\n\
                       fn main() {\n    a_name_to_find();\n}\n";
        std::fs::write(&source, program).unwrap();
        for made in [binary.parent().unwrap(), &dist] {
            std::fs::create_dir(made).unwrap();
        }
        let build = ["--edition", "2024", "-Cdebuginfo=line-tables-only", "-o"];
        run(Command::new("rustc").args(build).args([&binary, &source])).unwrap();
        split(&binary, &dist).unwrap();

        let shipped = dist.join("lines");
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&shipped) < size(&binary) / 2, "{} of {}", size(&shipped), size(&binary));
        let backtrace = capture(&mut Command::new(&shipped)).unwrap();
        assert!(backtrace.contains("a_name_to_find") && backtrace.contains("lines.rs:3"), "{backtrace}");
        std::fs::remove_file(dist.join("lines.debug")).unwrap();
        let backtrace = capture(&mut Command::new(&shipped)).unwrap();
        assert!(backtrace.contains("a_name_to_find") && !backtrace.contains("lines.rs:3"), "{backtrace}");
    }
}
