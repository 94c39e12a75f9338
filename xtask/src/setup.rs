//! `cargo xtask setup`: installs what the checks need and this machine does not have.
//!
//! From Debian: servers to test and measure against, as packages, only when their program is
//! missing. From PyPI: outside attackers and what checks the Python client, into `.venv`, at the
//! versions of `xtask/requirements.txt`. From npm: what makes a client of the OpenAPI document,
//! checks the JavaScript one, and what the console is built of and tried with, into `.npm`, at the
//! versions of `xtask/npm/package-lock.json`.
//! From the Go module proxy: h2spec (and a command for its cases for clients), Pebble, and OpenTelemetry's SDK and Prometheus'
//! library for remote write with programs that send by them, Grafana's schema of dashboards, into `.tools`, at the versions of
//! `go.mod` in `xtask/h2spec`, `xtask/pebble`, `xtask/otlpsender`, `xtask/promsender` and `xtask/dashboards`; Traefik
//! (`traefik.rs`); and Go itself where Debian's is too old (`go.rs`).
//! From Maven Central: Kafka, into `.tools` (`kafka.rs`).
//! From crates.io: cargo-deny, into `.tools`, unoptimised because building it is what costs.
//! Nothing else of the machine changes. Without root and without sudo it says what to install.
//! A step that fails is tried once more, since registries and networks have bad moments; what is installed stays.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};

use crate::chore::{cargo, find, run};
use crate::{go, kafka, traefik};

/// Version of cargo-deny that the checks are written for.
const CARGO_DENY: &str = "0.20.2";
/// What `cargo xtask book` makes the book with.
const MDBOOK: &str = "0.5.4";
/// The peer's version that the benchmarks are about.
const THROTTLECRAB: &str = "0.4.40";

/// An ACME authority to test against, and the DNS that it asks.
const PEBBLE: &[&str] = &[
    "github.com/letsencrypt/pebble/v2/cmd/pebble",
    "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv",
];

/// A Debian package and the program that shows that it is there.
const DEBIAN: &[(&str, &str)] = &[
    ("redis-server", "redis-server"),
    ("pg_ctlcluster", "postgresql"),
    ("chromium", "chromium"),
    ("nginx", "nginx"),
    // No program, so its whole path.
    ("/usr/lib/nginx/modules/ngx_stream_module.so", "libnginx-mod-stream"),
    ("caddy", "caddy"),
    ("openssl", "openssl"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("c++", "g++"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("javac", "openjdk-17-jdk-headless"),
    ("mvn", "maven"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("faketime", "faketime"),
    ("fiu-run", "fiu-utils"),
    ("promtool", "prometheus"),
    ("prometheus-alertmanager", "prometheus-alertmanager"),
    ("victoria-metrics", "victoria-metrics"),
    ("go", "golang-go"),
    ("zstdcat", "zstd"),
    ("sqlite3", "sqlite3"),
    ("slowhttptest", "slowhttptest"),
    ("haproxy", "haproxy"),
    ("ip", "iproute2"),
    ("rpmbuild", "rpm"),
    ("fakeroot", "fakeroot"),
    ("buildah", "buildah"),
    ("systemd-analyze", "systemd"),
];

/// Installs everything that `make test` needs.
///
/// # Errors
/// When something is missing and cannot be installed.
pub(crate) fn setup(root: &Path) -> anyhow::Result<()> {
    let has_venv = succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    let programs = DEBIAN.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package);
    let missing: Vec<&str> = programs.chain((!has_venv).then_some("python3-venv")).collect();
    twice("Debian's packages", || packages(&missing))?;
    // One list waits for registries while the other computes.
    std::thread::scope(|threads| {
        let fetched = threads.spawn(|| {
            twice("Python's packages", || python_packages(root))?;
            twice("npm's packages", || npm_packages(root))?;
            twice("Kafka", || kafka::kafka(root))?;
            twice("cargo-deny", || cargo_tool(root, "cargo-deny", CARGO_DENY, &["--debug"]))
        });
        let programs = go_toolchain_and_programs(root);
        fetched.join().map_err(|_| anyhow!("setup panicked"))?.and(programs)
    })
}

/// Go, and what is built by it.
fn go_toolchain_and_programs(root: &Path) -> anyhow::Result<()> {
    twice("Go", || go::setup(root))?;
    let programs: [(&str, &[&str]); 5] = [
        ("h2spec", &["github.com/summerwind/h2spec/cmd/h2spec", "./h2spec-upstream"]),
        ("pebble", PEBBLE),
        ("otlpsender", &["tidegate/xtask/otlpsender"]),
        ("promsender", &["tidegate/xtask/promsender"]),
        ("dashboards", &["tidegate/xtask/dashboards"]),
    ];
    for (name, packages) in programs {
        twice(name, || go_programs(root, name, packages))?;
    }
    twice("Traefik", || traefik::traefik(root))
}

/// Does `step`, and once more if that fails.
///
/// # Errors
/// The second error, which has the command line that failed.
fn twice(what: &str, step: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    step().or_else(|error| {
        println!("setup: {what} could not be installed, trying once more: {error:#}");
        step().with_context(|| {
            format!("{what} could not be installed, twice; run this by hand, then `make setup` again")
        })
    })
}

/// Builds the peer that `make bench` compares with; its build needs a protobuf compiler.
///
/// # Errors
/// When it does not build.
pub(crate) fn throttlecrab(root: &Path) -> anyhow::Result<()> {
    if find("protoc").is_none() {
        packages(&["protobuf-compiler"])?;
    }
    cargo_tool(root, "throttlecrab-server", THROTTLECRAB, &[])
}

/// Builds what makes the book, with the search that it embeds.
///
/// # Errors
/// When it does not build.
pub(crate) fn mdbook(root: &Path) -> anyhow::Result<()> {
    cargo_tool(root, "mdbook", MDBOOK, &["--debug", "--no-default-features", "--features", "search"])
}

fn packages(packages: &[&str]) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if find("apt-get").is_none() {
        bail!("missing, and this is no Debian: install the equivalent of `{by_hand}`");
    }
    let prefix: &[&str] = if is_root()? {
        &["env"]
    } else if succeeds(Command::new("sudo").args(["-n", "true"])) {
        &["sudo", "-n", "env"]
    } else {
        bail!("not root, and no sudo without a password; please run: sudo {by_hand}");
    };
    let apt = |arguments: &[&str]| {
        let words = [prefix, &["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"], arguments].concat();
        run(Command::new(words[0]).args(&words[1..]))
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

fn is_root() -> anyhow::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    Ok(user.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0"))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Makes `.venv` anew when the pinned list has changed.
fn python_packages(root: &Path) -> anyhow::Result<()> {
    let list = root.join("xtask/requirements.txt");
    let wanted = std::fs::read_to_string(&list).context("xtask/requirements.txt")?;
    let venv = root.join(".venv");
    let stamp = venv.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&list))?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// Makes `.npm` anew when the pinned list has changed.
fn npm_packages(root: &Path) -> anyhow::Result<()> {
    let (list, place) = (root.join("xtask/npm"), root.join(".npm"));
    let lock = "package-lock.json";
    let wanted = std::fs::read_to_string(list.join(lock)).context("xtask/npm/package-lock.json")?;
    let stamp = place.join("installed.json");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    for file in ["package.json", lock] {
        std::fs::copy(list.join(file), place.join(file)).with_context(|| file.to_owned())?;
    }
    // The lock names what other platforms need, too: then npm asks no registry which packages there are.
    run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(&place))?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// Builds programs of Go into `.tools`, once per `go.sum` of the folder `name` beside this crate's sources.
///
/// # Errors
/// When one does not build.
pub(crate) fn go_programs(root: &Path, name: &str, packages: &[&str]) -> anyhow::Result<()> {
    let (folder, programs) = (root.join("xtask").join(name), root.join(".tools/bin"));
    let sums = folder.join("go.sum");
    let wanted = std::fs::read_to_string(&sums).with_context(|| sums.display().to_string())?;
    let stamp = root.join(format!(".tools/{name}.sum"));
    let is_there = |package: &&str| programs.join(package.rsplit('/').next().unwrap_or_default()).exists();
    if packages.iter().all(is_there) && std::fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(&programs).with_context(|| programs.display().to_string())?;
    let mut to = programs.into_os_string();
    // A folder, in which each program has its own name.
    to.push("/");
    let build = ["build", "-trimpath", "-buildvcs=false", "-o"];
    run(go::program(root, "go").args(build).arg(to).args(packages).current_dir(&folder))?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// Installs a program from crates.io into `.tools`, once per version.
fn cargo_tool(root: &Path, name: &str, version: &str, flags: &[&str]) -> anyhow::Result<()> {
    let tools = root.join(".tools");
    let stamp = tools.join(format!("{name}-{version}"));
    if stamp.exists() && tools.join("bin").join(name).exists() {
        return Ok(());
    }
    run(cargo()
        .args(["install", name, "--locked", "--force", "--version", version, "--root"])
        .arg(&tools)
        .args(flags)
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
    std::fs::write(&stamp, "").with_context(|| stamp.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_step_that_fails_is_tried_once_more() {
        let tries = Cell::new(0);
        let step = |good: u32| {
            tries.set(tries.get() + 1);
            if tries.get() == good { Ok(()) } else { bail!("pip install x: exit status: 1") }
        };
        twice("x", || step(2)).unwrap();
        assert_eq!(tries.replace(0), 2);
        let told = format!("{:#}", twice("x", || step(3)).unwrap_err());
        assert_eq!(tries.get(), 2);
        assert!(told.starts_with("x could not be installed") && told.contains("pip install x"), "{told}");
    }
}
