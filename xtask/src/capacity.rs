//! `cargo xtask capacity`: Tidegate's tester against Tidegate's own service, as `docs/capacity.md`.
//!
//! The figures that Tidegate publishes about itself come out of its own tester, with the machine, the
//! interval and the cause of the limit stated in the report.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::bench::{BenchServer, Subject, binary, build, raise_descriptor_limit};
use crate::chore::run;

/// A client per request out of 100,000, so that the limit per client is not what is found.
const DECISION: &str = "/v1/check?client_id={{random 1 100000}}";

/// Without it, a client is its address, and the load has one.
const CONFIG: &str = "[attributes.check]\nclient_id = { query = 'client_id' }\n";

/// What a dry run asks of the tester: that the command works, in seconds.
const QUICK: &str = "--max-connections 16 --step-seconds 0.5 --warmup-seconds 0.1 --repeats 1";

/// Runs the tester against a fresh server and writes its reports; with `--quick` a dry run that leaves
/// them in `target/`.
///
/// # Errors
/// When the server does not start or the tester fails.
pub(crate) fn capacity(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let quick = match arguments {
        [] => false,
        [flag] if flag == "--quick" => true,
        _ => bail!("`cargo xtask capacity` takes --quick or nothing"),
    };
    raise_descriptor_limit()?;
    build(root)?;
    let config = root.join("target/capacity.toml");
    std::fs::write(&config, CONFIG).context("target/capacity.toml")?;
    let server = BenchServer::start(root, Subject::Tidegate, Some(&config))?;
    let folder = root.join(if quick { "target" } else { "docs" });
    let report = |extension| folder.join("capacity").with_extension(extension);
    run(Command::new(binary(root))
        .arg("saturate")
        .arg(format!("http://{}{DECISION}", server.address))
        .args(["--pid", &server.pid().to_string()])
        .args(if quick { QUICK } else { "" }.split_whitespace())
        .arg("--markdown")
        .arg(report("md"))
        .arg("--html")
        .arg(report("html")))
}
