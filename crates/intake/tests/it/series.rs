//! The limit on the series of each client.

use crate::support::{Setup, TestIntake, batch};
use serde_json::{Value, json};

#[test]
fn fault_73_series_beyond_the_limit_are_refused_by_name_in_each_protocols_own_way_and_old_ones_kept() {
    let intake = TestIntake::start(Setup { series_per_client: 100, ..Setup::default() });
    assert_eq!(intake.post("/metrics", &batch(100)).status, 200);
    // The filter may take one or the other new one for known, and has room for as many as it took so before.
    let explosion: Vec<Value> =
        (0..500).map(|number| json!({"name": format!("new.{number}"), "value": 1})).collect();
    let explosion = json!({ "metrics": explosion }).to_string();
    let refused = intake.post("/metrics", explosion.as_bytes());
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("3600")), "{}", refused.text());
    assert!(refused.text().contains("the series is new"), "{}", refused.text());
    let partial = intake.post("/metrics?partial=true", explosion.as_bytes()).json();
    assert!(partial["metrics_rejected"].as_u64().unwrap() > 450, "{partial}");
    assert!(partial["rejected"][0]["error"].as_str().unwrap().contains("the series is new"), "{partial}");
    let points: Vec<String> = (0..500).map(|number| format!("line.{number} value=1\n")).collect();
    let written = intake.post("/write", points.concat().as_bytes());
    assert_eq!(written.status, 400);
    assert!(written.text().contains("partial write") && written.text().contains("the series is new"));
    assert_eq!(intake.post("/metrics", &batch(100)).status, 200, "known series go on");
    let shown = intake.get("/v1/intake/series", &[]).json();
    assert_eq!((&shown["limit"], &shown["clients"][0]["client"]), (&json!(100), &json!("127.0.0.1")));
    assert!(shown["clients"][0]["series"].as_u64().unwrap() <= 100, "{shown}");
    assert!(shown["clients"][0]["refused"].as_u64().unwrap() > 900, "{shown}");
}
