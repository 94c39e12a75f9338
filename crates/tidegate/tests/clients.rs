//! Programs that others wrote, against the built binary: the simple API's published examples, as
//! they are, on the port that they name; and schemathesis, which reads the OpenAPI document and
//! tries to find a request that is answered with a 5xx or with something the document does not say.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::Tidegate;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of the virtual environment that `make setup` makes.
fn python_tool(name: &str) -> PathBuf {
    let path = repository().join(".venv/bin").join(name);
    assert!(path.exists(), "{} is missing: run `make setup`", path.display());
    path
}

fn example(program: &Path, arguments: &[&str], file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(file);
    let ran = Command::new(program).args(arguments).arg(path).output().unwrap();
    assert!(ran.status.success(), "{file}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_published_examples_run_unchanged_on_the_default_port() {
    let _service =
        Tidegate::start_in(tempfile::tempdir().unwrap(), &[], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:4000")]);
    assert_eq!(example(Path::new("sh"), &[], "ask.sh"), "{\"allowed\":true,\"remaining\":99}");
    assert_eq!(example(&python_tool("python"), &[], "ask.py"), "{'allowed': True, 'remaining': 98}\n");
    assert_eq!(example(Path::new("node"), &[], "ask.mjs"), "{ allowed: true, remaining: 97 }\n");
}

#[test]
fn schemathesis_finds_no_server_error_and_no_reply_that_the_document_does_not_describe() {
    let data = tempfile::tempdir().unwrap();
    // One policy of each kind that speaks for itself in replies: permits are handed out, calls denied.
    let policies = r#"
        [[policy]]
        name = "slots"
        algorithm = "concurrency"
        limit = 1000
        lease_seconds = 1
        key = []
        [[policy]]
        name = "few"
        algorithm = "token_bucket"
        limit = 50
        window_seconds = 1
        key = []
    "#;
    let file = data.path().join("policies.toml");
    std::fs::write(&file, policies).unwrap();
    let service = Tidegate::start_in(
        data,
        &["--config", file.to_str().unwrap()],
        &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_HTTP_LEGACY_HEADERS", "true")],
    );
    let ran = Command::new(python_tool("schemathesis"))
        .args(["run", &service.url("/openapi.json"), "--max-examples", "25", "--seed", "1"])
        .args(["--request-timeout", "60", "--suppress-health-check", "too_slow"])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .current_dir(service.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
}
