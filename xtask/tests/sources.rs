//! `make run` needs Rust, make and a C compiler, and nothing that `make setup` installs: it is one call of cargo, what the program is built
//! of is in the repository, and no build script of a dependency calls for another tool. (That a clone without `.venv`, `.npm` and `.tools`
//! builds follows, without building it once more.)

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files that are in git, or would be with the next `git add`.
fn tracked(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed.split_terminator('\0').map(|file| root.join(file)).collect())
}

/// The files that the compiler has read for the crates of the workspace, by the lists that it leaves for cargo. Some of the
/// lists are of earlier builds, and name files that may be gone.
fn read_by_the_compiler(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut read = BTreeSet::new();
    for entry in std::env::current_exe()?.with_file_name("").read_dir()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".d") || !(name.starts_with("tidegate-") || name.starts_with("tidegate_")) {
            continue;
        }
        // Lines of what is made, a colon, and what it is made of.
        for line in std::fs::read_to_string(entry.path())?.lines().filter(|line| !line.starts_with('#')) {
            let files = line.split_once(": ").map_or("", |(_, files)| files).split(' ');
            let files = files.filter_map(|file| root.join(file).canonicalize().ok());
            read.extend(files.filter(|file| file.is_file()));
        }
    }
    Ok(read)
}

#[test]
fn everything_that_is_compiled_is_tracked_by_git() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap();
    let (tracked, generated) = (tracked(&root).unwrap(), root.join("target"));
    let read = read_by_the_compiler(&root).unwrap();
    let main = root.join("crates/tidegate/src/main.rs");
    assert!(read.contains(&main), "{} is not among {} files", main.display(), read.len());
    let is_strange = |file: &&PathBuf| {
        file.starts_with(&root) && !file.starts_with(&generated) && !tracked.contains(*file)
    };
    let strange: Vec<&PathBuf> = read.iter().filter(is_strange).collect();
    assert!(strange.is_empty(), "read by the compiler, and not in git: {strange:?}");
}

/// What a command prints that succeeds.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn make_run_is_one_call_of_cargo_where_nothing_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root.join("Makefile"), folder.path().join("Makefile")).unwrap();
    let mut make = Command::new("make");
    make.args(["--dry-run", "run"]).current_dir(folder.path());
    // Of a make that this is run by.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        make.env_remove(name);
    }
    assert_eq!(printed(&mut make), "cargo run --profile quick --locked --package tidegate -- serve\n");
}

#[test]
fn the_program_is_built_with_a_c_compiler_alone() {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "--package", "tidegate", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let tree = printed(&mut tree);
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("cc"), "{crates:?}");
    // They call cmake, clang, protoc, a C++ compiler, autotools and nasm.
    for caller in ["cmake", "bindgen", "prost-build", "libfuzzer-sys", "rdkafka-sys", "autotools", "nasm-rs"]
    {
        assert!(
            !crates.contains(caller),
            "{caller}: cargo tree --package tidegate --edges build -i {caller}"
        );
    }
}
