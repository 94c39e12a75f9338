//! The scenarios of the intake's report, against the intake.

use std::fs;
use std::path::Path;

use crate::support::{Tidegate, binary};
use serde_json::{Value, json};

#[test]
fn bodies_of_the_reports_scenarios_are_kept_and_not_refused() {
    let service = Tidegate::start(&[], &[]);
    let to = format!("http://{}/", service.intake.unwrap());
    for name in ["light", "medium", "high", "max", "stress"] {
        let scenario = format!("../../scenarios/intake-{name}.toml");
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(scenario)).unwrap();
        // Two requests of each client, without a pause.
        let lines = text.lines().filter(|line| !line.starts_with("think_ms"));
        let two = "requests_per_connection = 2";
        let short = lines.map(|line| if line.starts_with("requests_per_connection") { two } else { line });
        let file = service.path().join(format!("{name}.toml"));
        fs::write(&file, short.collect::<Vec<_>>().join("\n")).unwrap();
        let mut command = binary();
        command.args(["load", &to, "--json", "--scenario"]).arg(&file);
        let ran = command.output().unwrap();
        let record: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let sent = record["plan"]["connections"].as_u64().unwrap() * 2;
        assert_eq!((ran.status.code(), &record["good"]), (Some(0), &json!(sent)), "{name}: {record}");
    }
}
