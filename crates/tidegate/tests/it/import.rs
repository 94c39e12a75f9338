//! `tidegate import`: the rules of `tests/import` become the policies beside them, and the servers and routers of other gateways our routes.

mod backend;
mod bootstrap;
mod caddy;
mod nginx;
mod nginx_certificates;
mod traefik;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::binary;

/// The command, where the examples are.
fn import(arguments: &[&str]) -> Command {
    let mut command = binary();
    command.args(["import", "envoy"]).args(arguments);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/import"));
    command
}

#[test]
fn rules_become_policies_that_the_server_accepts() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["messages", "addresses", "replaced"] {
        let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/import/{name}.toml"));
        let ran = import(&[&format!("{name}.yaml")]).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{said}");
        assert_eq!(said, fs::read_to_string(&expected).unwrap(), "{name}");

        let written = folder.path().join(name);
        let output = ["--output", written.to_str().unwrap()];
        let ran = import(&[&format!("{name}.yaml"), output[0], output[1]]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        let checked = binary().arg("check").arg(&written).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        assert!(said.ends_with(&fs::read_to_string(&written).unwrap()), "the warnings are said instead");
        let again = import(&[&format!("{name}.yaml"), output[0], output[1]]).output().unwrap();
        assert_eq!(again.status.code(), Some(1), "what is there is not overwritten");
    }
}

#[test]
fn a_file_with_mistakes_gives_their_places_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("policies.toml");
    let ran = import(&["wrong.yaml", "--output", output.to_str().unwrap()]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(!output.exists());
    let said = String::from_utf8(ran.stderr).unwrap();
    let lines: Vec<&str> = said.lines().map(|line| line.split(" (accepted: ").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "wrong.yaml:3:5: descriptors[0].key: is the name of an attribute that every request has",
            "wrong.yaml:3:5: descriptors[0].rate_limit.unit: is too long",
            "wrong.yaml:5:5: descriptors[1]: as a policy, limit is 4000000000",
            "wrong.yaml:9:47: descriptors[2].rate_limit: is unlimited, and replaces others",
        ]
    );
}
