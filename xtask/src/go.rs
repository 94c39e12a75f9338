//! The Go that builds and tests: the machine's, or where that is too old one of the Go module proxy, in `.tools/go`.
//!
//! Debian's Go can be older than the modules here want. Go publishes its own distributions as modules, so the old
//! one fetches a new one through the proxy that it uses for everything else, and checks it as any module. Nothing
//! of the machine's Go changes. Programs of Go are built here, too.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::{capture, run};
use crate::installed;

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

/// Builds programs of Go into `.tools`, anew when the sources of the folder `name` beside this crate's have changed, or one is of other
/// modules than its `go.sum` has.
///
/// # Errors
/// When one does not build.
pub(crate) fn programs(root: &Path, name: &str, packages: &[&str]) -> anyhow::Result<()> {
    let (folder, place) = (root.join("xtask").join(name), root.join(".tools/bin"));
    let sums = folder.join("go.sum");
    let sums = fs::read_to_string(&sums).with_context(|| sums.display().to_string())?;
    let (sources, stamp) = (sources(&folder)?, root.join(format!(".tools/{name}.built")));
    let are_right = || {
        packages.iter().try_for_each(|package| {
            let built = place.join(package.rsplit('/').next().unwrap_or_default());
            installed::go(&sums, &capture(program(root, "go").args(["version", "-m"]).arg(built))?)
        })
    };
    if fs::read_to_string(&stamp).is_ok_and(|built| built == sources) && are_right().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let mut to = place.clone().into_os_string();
    // A folder, in which each program has its own name.
    to.push("/");
    let build = ["build", "-trimpath", "-buildvcs=false", "-o"];
    run(program(root, "go").args(build).arg(to).args(packages).current_dir(&folder))?;
    are_right()?;
    fs::write(&stamp, sources).with_context(|| stamp.display().to_string())
}

/// What programs of a folder are built of, but for the modules that they use: its files but `go.sum`, with their names.
///
/// # Errors
/// When one cannot be read.
fn sources(folder: &Path) -> anyhow::Result<String> {
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
    use crate::setup::twice;

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

    /// A repository with a program of Go, which uses a module of a proxy that is a folder.
    fn repository_with_go(root: &Path) {
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let module = "module example.com/used\n\ngo 1.19\n";
        write("zip/example.com/used@v1.0.0/go.mod", module);
        write("zip/example.com/used@v1.0.0/used.go", "package used\n\nconst Word = \"used\"\n");
        write("proxy/example.com/used/@v/v1.0.0.mod", module);
        write("proxy/example.com/used/@v/v1.0.0.info", "{\"Version\": \"v1.0.0\"}");
        let zip = root.join("proxy/example.com/used/@v/v1.0.0.zip");
        let pack = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as packed:\n    for file in sys.argv[2:]: packed.write(file)";
        run(Command::new("python3")
            .args(["-c", pack])
            .arg(zip)
            .args(["example.com/used@v1.0.0/go.mod", "example.com/used@v1.0.0/used.go"])
            .current_dir(root.join("zip")))
        .unwrap();
        write(
            "xtask/program/go.mod",
            "module example.com/program\n\ngo 1.19\n\nrequire example.com/used v1.0.0\n",
        );
        write(
            "xtask/program/main.go",
            "package main\n\nimport \"example.com/used\"\n\nfunc main() { println(used.Word) }\n",
        );
        let set = format!(
            "GOPROXY=file://{0}/proxy GOSUMDB=off GOMODCACHE={0}/modules GOFLAGS=-modcacherw",
            root.display()
        );
        let go = capture(Command::new("sh").args(["-c", "command -v go"])).unwrap();
        write(".tools/go/bin/go", &format!("#!/bin/sh\n{set} exec {} \"$@\"\n", go.trim()));
        run(Command::new("chmod").arg("+x").arg(root.join(".tools/go/bin/go"))).unwrap();
        let tidy = ["mod", "tidy"];
        run(program(root, "go").args(tidy).current_dir(root.join("xtask/program"))).unwrap();
    }

    #[test]
    fn go_takes_a_longer_list_of_checksums_and_refuses_a_wrong_one() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        repository_with_go(root);
        let sums = root.join("xtask/program/go.sum");
        let right = fs::read_to_string(&sums).unwrap();
        let build = || twice("program", || programs(root, "program", &["example.com/program"]));
        let program = root.join(".tools/bin/program");
        let built = || fs::metadata(&program).unwrap().modified().unwrap();
        build().unwrap();
        let first = built();

        let more = "example.com/more v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
        fs::write(&sums, format!("{more}{right}")).unwrap();
        build().unwrap();
        assert_eq!(built(), first, "a superset has nothing built anew");

        fs::write(&sums, right.replace("h1:", "h1:AAAA")).unwrap();
        let refused = format!("{:#}", build().unwrap_err());
        let by_hand =
            format!("run this by hand, then `make setup` again: cd {}/xtask/program && ", root.display());
        assert!(refused.contains(&by_hand) && refused.contains("go build"), "{refused}");

        fs::write(&sums, &right).unwrap();
        let main = root.join("xtask/program/main.go");
        let changed = fs::read_to_string(&main).unwrap().replace("used.Word", "used.Word, 2");
        fs::write(main, changed).unwrap();
        build().unwrap();
        assert!(built() > first, "what has changed is built");
    }
}
