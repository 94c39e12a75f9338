//! The Go that builds and tests: the machine's, or where that is too old one of the Go module proxy, in `.tools/go`.
//!
//! Debian's Go can be older than the modules here want. Go publishes its own distributions as modules, so the old
//! one fetches a new one through the proxy that it uses for everything else, and checks it as any module. Nothing
//! of the machine's Go changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::{capture, run};

/// What the modules of `clients/go` and Traefik want.
const OLDEST: (u32, u32) = (1, 26);
/// What is fetched where the machine's is older.
const FETCHED: &str = "1.26.8";

/// A program of Go's: `go` or `gofmt`.
pub(crate) fn program(root: &Path, name: &str) -> Command {
    let fetched = root.join(".tools/go/bin").join(name);
    let mut command = Command::new(if fetched.exists() { fetched } else { name.into() });
    // The one that setup has chosen, and no other that a go.mod may name.
    command.env("GOTOOLCHAIN", "local");
    command
}

/// Fetches a new Go if the machine's is too old.
///
/// # Errors
/// When it cannot be fetched; the message says what to install.
pub(crate) fn setup(root: &Path) -> anyhow::Result<()> {
    let said = capture(program(root, "go").arg("version"))?;
    let version = version(&said).with_context(|| format!("`go version` says {}", said.trim()))?;
    if version >= OLDEST {
        return Ok(());
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let (major, minor) = OLDEST;
    let distribution = format!("golang.org/toolchain@v0.0.1-go{FETCHED}.linux-{architecture}");
    let fetched = module(root, &distribution).with_context(|| {
        format!("this machine's Go is {}.{}, too old: install {major}.{minor} or later", version.0, version.1)
    })?;
    let place = root.join(".tools/go");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    run(Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(&fetched.folder).arg(&place))?;
    // A module has no programs, only files.
    let tools = place.join("pkg/tool").join(format!("linux_{architecture}"));
    for folder in [place.join("bin"), tools] {
        for file in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            fs::set_permissions(file?.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// What programs of a folder are built of, but for the modules that they use: its files but `go.sum`, with their names.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn sources(folder: &Path) -> anyhow::Result<String> {
    let (mut folders, mut files) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut sources = String::new();
    for file in files.iter().filter(|file| !file.ends_with("go.sum")) {
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(folder).unwrap_or(file).display().to_string();
        sources.extend(["==== ", &name, "\n", &String::from_utf8_lossy(&text), "\n"]);
    }
    Ok(sources)
}

/// A module in Go's cache.
pub(crate) struct Module {
    /// Where its files are, read-only.
    pub(crate) folder: PathBuf,
    /// Their checksum.
    pub(crate) sum: String,
}

/// Fetches a module, `path@version`.
///
/// # Errors
/// When the proxy does not have it, or has other files than the checksum database knows.
pub(crate) fn module(root: &Path, name: &str) -> anyhow::Result<Module> {
    let said = capture(program(root, "go").args(["mod", "download", "-json", name]).current_dir(root))?;
    let said: serde_json::Value = serde_json::from_str(&said).context("what `go mod download` says")?;
    match (said["Dir"].as_str(), said["Sum"].as_str()) {
        (Some(folder), Some(sum)) => Ok(Module { folder: folder.into(), sum: sum.to_owned() }),
        _ => bail!("`go mod download {name}` says {said}"),
    }
}

/// Of `go version go1.26.8 linux/amd64`, 1 and 26.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))?
        .split(|c: char| !c.is_ascii_digit());
    Some((1, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_says_its_version() {
        for (said, expected) in [
            ("go version go1.26.8 linux/amd64\n", Some((1, 26))),
            ("go version go1.19.8 linux/amd64\n", Some((1, 19))),
            ("go version go1.27rc1 linux/amd64\n", Some((1, 27))),
            ("go version devel +0123abc linux/amd64\n", None),
        ] {
            assert_eq!(version(said), expected, "{said}");
        }
        assert!(version("go version go1.19.8 linux/amd64").unwrap() < OLDEST);
    }

    #[test]
    fn what_is_fetched_is_new_enough_for_every_module_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(version(&format!("go{FETCHED}")).unwrap() >= OLDEST);
        for file in [
            "clients/go",
            "clients/go/tidegategrpc",
            "clients/go/tidegateotel",
            "xtask/h2spec",
            "xtask/pebble",
            "xtask/otlpsender",
            "xtask/charts",
            "xtask/collector",
            "xtask/dashboards",
        ] {
            let text = fs::read_to_string(root.join(file).join("go.mod")).unwrap();
            let wanted = text.lines().find_map(|line| line.strip_prefix("go ")).unwrap();
            assert!(version(&format!("go{wanted}")).unwrap() <= OLDEST, "{file} wants Go {wanted}");
        }
    }
}
