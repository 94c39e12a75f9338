//! `cargo xtask dist`: the release binary as it is shipped, with its debug information in a file of its
//! own, in `target/dist/`.
//!
//! Most of the release binary is line tables, which only a backtrace reads. The shipped binary keeps
//! the names of functions; with `tidegate.debug` beside it, a backtrace has files and lines as well. A profile
//! with `strip` would build every crate a second time, and would leave the line tables nowhere.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::bench;
use crate::chore::run;

/// Builds the release binary and takes it apart.
///
/// # Errors
/// When it does not build, or binutils are missing.
pub(crate) fn dist(root: &Path) -> anyhow::Result<()> {
    bench::build(root)?;
    let (binary, folder) = (bench::binary(root), root.join("target/dist"));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    split(&binary, &folder)?;
    for name in ["tidegate", "tidegate.debug"] {
        let bytes = std::fs::metadata(folder.join(name)).with_context(|| name.to_owned())?.len();
        println!("target/dist/{name}: {} MB", bytes / 1_000_000);
    }
    Ok(())
}

/// Writes the program, and its debug information, into `folder`, under its own name and with `.debug` after it.
fn split(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = binary.file_name().context("a program has a name")?.display().to_string();
    let debug = format!("{name}.debug");
    // In the folder, because the program is to name the other file without a path.
    let objcopy = |arguments: &[&str], to: &str| {
        run(Command::new("objcopy").args(arguments).arg(binary).arg(to).current_dir(folder))
    };
    objcopy(&["--only-keep-debug"], &debug)?;
    objcopy(&["--strip-debug", &format!("--add-gnu-debuglink={debug}")], &name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chore::capture;

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
