//! Programs that others wrote, against the built binary: the simple API's published examples, as
//! they are, on the port that they name; and schemathesis, which reads the OpenAPI document and
//! tries to find a request that is answered with a 5xx or with something the document does not say; and
//! the clients that two generators make of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Tidegate, agent};

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/examples").join(file);
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

const TOKEN: &str = "the-token-of-the-operator";

/// The OpenAPI document, in a file of the service's folder.
fn document(service: &Tidegate) -> PathBuf {
    let text = agent().get(service.url("/openapi.json")).call().unwrap().body_mut().read_to_string().unwrap();
    let path = service.path().join("openapi.json");
    std::fs::write(&path, text).unwrap();
    path
}

fn said(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {out}{errors}");
    out.into_owned()
}

#[test]
fn the_openapi_document_is_valid_and_names_describes_and_shows_each_operation() {
    let service = Tidegate::start(&[], &[]);
    let path = document(&service);
    said(Command::new(python_tool("openapi-spec-validator")).arg(&path));
    let text = std::fs::read_to_string(&path).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut names = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let place = format!("{method} {path}");
            names.push(operation["operationId"].as_str().unwrap().to_owned());
            assert!(
                operation["summary"].as_str().is_some_and(|it| it.ends_with('.')),
                "{place} has no summary"
            );
            assert!(operation.to_string().contains("\"example\":"), "{place} has no example");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let description = response["description"].as_str().unwrap();
                assert!(!description.is_empty(), "{place} {status} has no description");
            }
        }
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "operation ids repeat");

    // The interface changes in review only: INSTA_UPDATE=always writes the copy anew.
    let kept = repository().join("docs/openapi.json");
    let pretty = format!("{document:#}\n");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&kept, &pretty).unwrap();
    }
    let same = std::fs::read_to_string(&kept).is_ok_and(|kept| kept == pretty);
    assert!(same, "docs/openapi.json is not what the server says; INSTA_UPDATE=always writes it anew");
}

#[test]
fn a_python_client_that_is_generated_works_against_the_server() {
    let service = Tidegate::start(&[], &[("TIDEGATE_ADMIN_TOKEN", TOKEN)]);
    let path = document(&service);
    let tools = repository().join(".venv/bin").canonicalize().unwrap();
    let search = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let package = service.path().join("tidegate_client");
    let generated = said(
        Command::new(python_tool("openapi-python-client"))
            .args(["generate", "--meta", "none", "--fail-on-warning", "--path"])
            .arg(&path)
            .arg("--output-path")
            .arg(&package)
            .env("PATH", search),
    );
    assert!(!generated.to_lowercase().contains("warning"), "{generated}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/examples/generated_client.py");
    let told = said(
        Command::new(python_tool("python"))
            .arg(script)
            .env("PYTHONPATH", service.path())
            .env("TIDEGATE_URL", service.url(""))
            .env("TIDEGATE_TOKEN", TOKEN),
    );
    assert_eq!(
        told,
        "401 True\nTrue 1 False\nTrue 0 False\nFalse 0 True\nok\nTrue\n['default', 'slots']\n1\n\
         True default 4\n[3, 2]\n['default']\nTrue\nFalse\n30000\n204\n\
         [('admin', 'put', 'default'), ('admin', 'put', 'vip'), ('admin', 'put', 'slots'), ('admin', 'put', 'b')]\n"
    );
}

#[test]
fn a_typescript_client_that_is_generated_works_against_the_server() {
    let service = Tidegate::start(&[], &[("TIDEGATE_ADMIN_TOKEN", TOKEN)]);
    let path = document(&service);
    let folder = service.path().join("client");
    let packages = repository().join(".npm/node_modules");
    assert!(packages.exists(), "{} is missing: run `make setup`", packages.display());
    let tool = |name: &str| Command::new(packages.join(".bin").join(name));
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(packages.canonicalize().unwrap(), folder.join("node_modules")).unwrap();
    std::fs::write(folder.join("package.json"), "{\"type\": \"module\"}").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/examples/generated_client.ts");
    std::fs::copy(script, folder.join("client.ts")).unwrap();
    said(
        tool("openapi-typescript")
            .arg(&path)
            .args(["--output", "schema.d.ts", "--default-non-nullable", "false"])
            .current_dir(&folder),
    );
    let options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "client.ts"];
    said(tool("tsc").args(options).current_dir(&folder));
    let told = said(
        Command::new("node")
            .arg("client.js")
            .current_dir(&folder)
            .env("TIDEGATE_URL", service.url(""))
            .env("TIDEGATE_TOKEN", TOKEN),
    );
    assert_eq!(
        told,
        "401 Unauthorized\ntrue 1 false\ntrue 0 false\nfalse 0 true\n200\n\
         stored default, stored writes\n2 1, 1 1\n204\n204\n"
    );
}

/// The simple API's clients, permits and policies of each algorithm among them.
#[test]
fn a_body_without_a_field_is_refused_exactly_where_the_openapi_document_requires_the_field() {
    let service = Tidegate::start(&[], &[]);
    document(&service);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/examples/required_fields.py");
    let told = said(
        Command::new(python_tool("python"))
            .arg(script)
            .current_dir(service.path())
            .env("TIDEGATE_URL", service.url("")),
    );
    let told = told.trim_end().strip_suffix(" bodies are answered as the document says");
    let asked: u32 = told.and_then(|it| it.parse().ok()).expect("the script says how many");
    assert!(asked > 50, "{asked} bodies asked");
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
        // Its reply has no end.
        .args(["--exclude-path", "/v1/events"])
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
