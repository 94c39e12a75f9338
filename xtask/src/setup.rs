//! `cargo xtask setup`: installs what the checks need and this machine does not have.
//!
//! From Debian: servers to test against, as packages, only when their program is missing, whatever its version; [`DEBIAN`] says what each is
//! for. From PyPI: outside attackers and what checks the Python client, into `.venv`, at the versions of `xtask/requirements.txt`. From npm:
//! what makes a client of the OpenAPI document, checks the JavaScript one, and what the console is built of and tried with, into `.npm`, at
//! the versions of `xtask/npm/package-lock.json`; `package.json` beside it says what each is for. Node itself where Debian's is too old
//! (`node.rs`).
//! From the Go module proxy: the programs of [`GO`], into `.tools`, at the versions of `go.mod` in folders of their names; Traefik
//! (`traefik.rs`); and Go itself where Debian's is too old (`go.rs`).
//! From Maven Central: Kafka, into `.tools` (`kafka.rs`), which the tests of forwarding start.
//! From crates.io: cargo-deny, into `.tools`, unoptimised because building it is what costs.
//! Nothing else of the machine changes. Without root and without sudo it says what to install.
//!
//! `make test` uses all of it; what only one other chore uses, that chore asks for (mdbook, wrk, Helm, the collector).
//! What is installed is compared with each lock (`installed.rs`): more of it, or newer things in a registry, are no mistake. Lists are
//! installed side by side, since most of them wait for a registry. A step that fails is tried once more, since registries and networks have
//! bad moments; then its command is said, to be run by hand. What the others have installed stays.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::chore::{cargo, find, run};
use crate::{go, installed, kafka, node, traefik};

/// Version of cargo-deny that the checks are written for.
const CARGO_DENY: &str = "0.20.2";
/// What `cargo xtask book` makes the book with.
const MDBOOK: &str = "0.5.4";
/// The peer's version that the benchmarks are about.
const THROTTLECRAB: &str = "0.4.40";

/// Programs of Go: the folder of `xtask/` that pins them, their packages, and what the tests want them for.
const GO: &[(&str, &[&str], &str)] = &[
    (
        "h2spec",
        &["github.com/summerwind/h2spec/cmd/h2spec", "./h2spec-upstream"],
        "HTTP/2 to the letter, from both sides",
    ),
    (
        "pebble",
        &[
            "github.com/letsencrypt/pebble/v2/cmd/pebble",
            "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv",
        ],
        "an ACME authority, and the DNS that it asks",
    ),
    ("otlpsender", &["tidegate/xtask/otlpsender"], "OpenTelemetry's SDK, which sends metrics"),
    (
        "promsender",
        &["tidegate/xtask/promsender"],
        "Prometheus' library for remote write, which sends metrics",
    ),
    ("dashboards", &["tidegate/xtask/dashboards"], "Grafana's schema of dashboards"),
];

/// A program that shows that a Debian package is there, the package, and what the tests want it for.
const DEBIAN: &[(&str, &str, &str)] = &[
    (
        "redis-server",
        "redis-server",
        "stores that nodes share, and the Redis door: redis-cli and redis-benchmark come with it",
    ),
    ("pg_ctlcluster", "postgresql", "stores that nodes share"),
    ("chromium", "chromium", "the console, the book, reports, and the JavaScript client in a browser"),
    ("nginx", "nginx", "servers behind the gateway, and configurations that are imported"),
    // No program, so its whole path.
    (
        "/usr/lib/nginx/modules/ngx_stream_module.so",
        "libnginx-mod-stream",
        "configurations of nginx for TCP that are imported",
    ),
    ("caddy", "caddy", "the example deploy/Caddyfile"),
    ("openssl", "openssl", "certificates, and handshakes that no library makes"),
    ("h2load", "nghttp2-client", "HTTP/2 from many connections"),
    ("c++", "g++", "Kafka's client and libFuzzer are C++"),
    ("node", "nodejs", "the JavaScript client, and the console"),
    ("npm", "npm", "what is in xtask/npm"),
    ("javac", "openjdk-17-jdk-headless", "the Java client, and Kafka"),
    ("mvn", "maven", "the Java client, and Kafka's jars"),
    ("curl", "curl", "requests as people send them"),
    ("dig", "bind9-dnsutils", "questions to the names that the edge answers for"),
    ("faketime", "faketime", "certificates and tokens that expire"),
    ("fiu-run", "fiu-utils", "disks that are full or broken"),
    ("promtool", "prometheus", "reads the metrics page; promtool checks it and the alerts"),
    ("prometheus-alertmanager", "prometheus-alertmanager", "is told of alerts"),
    ("victoria-metrics", "victoria-metrics", "has metrics forwarded to it"),
    ("go", "golang-go", "the Go client, and the programs of `GO`"),
    ("zstdcat", "zstd", "reads sealed files of the log"),
    ("sqlite3", "sqlite3", "reads the control database as the pages say"),
    ("slowhttptest", "slowhttptest", "slow clients of the gateway"),
    ("haproxy", "haproxy", "what docs/migrations/haproxy.md moves away from"),
    ("ip", "iproute2", "networks of a test's own, and cables that are pulled"),
    ("rpmbuild", "rpm", "the .rpm"),
    ("fakeroot", "fakeroot", "the .deb, installed by no root"),
    ("buildah", "buildah", "the image"),
    ("systemd-analyze", "systemd", "checks the unit of the packages"),
];

/// Installs everything that `make test` needs.
///
/// # Errors
/// When something is missing and cannot be installed.
pub(crate) fn setup(root: &Path) -> anyhow::Result<()> {
    let has_venv = succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    let missing = missing(|program| find(program).is_some(), has_venv);
    twice("Debian's packages", || packages(&missing))?;
    side_by_side(&[
        &|| twice("Python's packages", || python_packages(root)),
        &|| {
            twice("Node", || node::setup(root))?;
            twice("npm's packages", || npm_packages(root))
        },
        &|| twice("Kafka", || kafka::kafka(root)),
        &|| twice("cargo-deny", || cargo_tool(root, "cargo-deny", CARGO_DENY, &["--debug"])),
        &|| go_toolchain_and_programs(root),
    ])
}

/// Debian's packages of which the program is not there. Whichever version is there is taken.
fn missing(is_there: impl Fn(&str) -> bool, has_venv: bool) -> Vec<&'static str> {
    let absent = DEBIAN.iter().filter(|(program, ..)| !is_there(program)).map(|(_, package, _)| *package);
    absent.chain((!has_venv).then_some("python3-venv")).collect()
}

/// Does all of `lists` at the same time, each to its end.
///
/// # Errors
/// Those of all that fail.
fn side_by_side(lists: &[&(dyn Fn() -> anyhow::Result<()> + Sync)]) -> anyhow::Result<()> {
    let ended: Vec<anyhow::Result<()>> = std::thread::scope(|threads| {
        let running: Vec<_> = lists.iter().map(|list| threads.spawn(list)).collect();
        running.into_iter().map(|list| list.join().unwrap_or_else(|_| bail!("setup panicked"))).collect()
    });
    let failures: Vec<String> = ended.into_iter().filter_map(Result::err).map(|e| format!("{e:#}")).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// Go, and what is built by it.
fn go_toolchain_and_programs(root: &Path) -> anyhow::Result<()> {
    twice("Go", || go::setup(root))?;
    for (name, packages, _) in GO {
        twice(name, || go::programs(root, name, packages))?;
    }
    twice("Traefik", || traefik::traefik(root))
}

/// Does `step`, and once more if that fails.
///
/// # Errors
/// The second error, which has the command line that failed.
pub(crate) fn twice(what: &str, step: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    step().or_else(|error| {
        println!("setup: {what} could not be installed, trying once more: {error:#}");
        step().with_context(|| {
            format!("{what} could not be installed, twice; run this by hand, then `make setup` again")
        })
    })
}

/// Installs what `make bench` alone uses: its load generator, and the peer that it compares with, whose build needs a protobuf compiler.
///
/// # Errors
/// When one cannot be installed.
pub(crate) fn bench(root: &Path) -> anyhow::Result<()> {
    let programs = [("wrk", "wrk"), ("protoc", "protobuf-compiler")];
    let absent = programs.into_iter().filter(|(program, _)| find(program).is_none());
    packages(&absent.map(|(_, package)| package).collect::<Vec<_>>())?;
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

/// Makes `.venv` anew when it has not what the pinned list names.
fn python_packages(root: &Path) -> anyhow::Result<()> {
    let (list, venv) = (root.join("xtask/requirements.txt"), root.join(".venv"));
    let wanted = std::fs::read_to_string(&list).context("xtask/requirements.txt")?;
    if installed::python(&wanted, &venv).is_ok() {
        return Ok(());
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&list))?;
    installed::python(&wanted, &venv).with_context(|| removal(&venv))
}

/// Makes `.npm` anew when it has not what the lock names.
fn npm_packages(root: &Path) -> anyhow::Result<()> {
    let (list, place) = (root.join("xtask/npm"), root.join(".npm"));
    let lock = "package-lock.json";
    let wanted = std::fs::read_to_string(list.join(lock)).context("xtask/npm/package-lock.json")?;
    if installed::npm(&wanted, &place).is_ok() {
        return Ok(());
    }
    std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    for file in ["package.json", lock] {
        std::fs::copy(list.join(file), place.join(file)).with_context(|| file.to_owned())?;
    }
    // The lock names what other platforms need, too: then npm asks no registry which packages there are.
    run(node::npm(root)?.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&place))?;
    installed::npm(&wanted, &place).with_context(|| removal(&place))
}

/// What is run by hand where an installer has left something else than its lock names.
fn removal(place: &Path) -> String {
    format!("rm -r {}", place.display())
}

/// Installs a program from crates.io into `.tools`, when it is not there at this version.
fn cargo_tool(root: &Path, name: &str, version: &str, flags: &[&str]) -> anyhow::Result<()> {
    let tools = root.join(".tools");
    if installed::cargo(name, version, &tools).is_ok() {
        return Ok(());
    }
    run(cargo()
        .args(["install", name, "--locked", "--force", "--version", version, "--root"])
        .arg(&tools)
        .args(flags)
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
    installed::cargo(name, version, &tools).with_context(|| removal(&tools))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    #[test]
    fn all_lists_are_installed_to_their_end_whichever_fails() {
        let done = AtomicUsize::new(0);
        let good = || {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        side_by_side(&[&good, &good]).unwrap();
        let failed = side_by_side(&[&|| bail!("no Kafka"), &good, &|| bail!("no Go")]).unwrap_err();
        assert_eq!((failed.to_string().as_str(), done.load(Ordering::Relaxed)), ("no Kafka\nno Go", 3));
    }

    #[test]
    fn debian_is_asked_for_what_is_missing_and_for_nothing_newer() {
        assert!(missing(|_| true, true).is_empty(), "a machine with more, or with newer ones");
        assert_eq!(missing(|program| program != "h2load", false), ["nghttp2-client", "python3-venv"]);
    }

    #[test]
    fn everything_says_what_it_is_for() {
        let whys = DEBIAN.iter().map(|(_, _, why)| *why).chain(GO.iter().map(|(_, _, why)| *why));
        assert!(whys.into_iter().all(|why| !why.is_empty()));
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["npm", "node"] {
            let text = std::fs::read_to_string(xtask.join(folder).join("package.json")).unwrap();
            let list: serde_json::Value = serde_json::from_str(&text).unwrap();
            let names = |key: &str| list[key].as_object().into_iter().flat_map(|list| list.keys().cloned());
            let packages: BTreeSet<String> =
                names("dependencies").chain(names("optionalDependencies")).collect();
            assert_eq!(names("//").collect::<BTreeSet<_>>(), packages, "xtask/{folder}/package.json");
        }
        let list = std::fs::read_to_string(xtask.join("requirements.txt")).unwrap();
        let (asked_for, needed_by_those) = list.rsplit_once("\n\n").unwrap();
        let without = asked_for.lines().find(|line| line.contains("==") && !line.contains("  # "));
        assert_eq!(without, None);
        assert!(needed_by_those.lines().count() > 50);
    }
}
