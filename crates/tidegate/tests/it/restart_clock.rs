//! A restart while the civil clock is an hour behind what it was: buckets keep what they have.

use std::fs;

use crate::support;
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};

fn spend_one(service: &Tidegate) -> Value {
    let body = json!({"client_id": "a", "resource": "r"});
    agent().post(service.url("/api/v1/ratelimit")).send_json(&body).unwrap().body_mut().read_json().unwrap()
}

#[test]
fn fault_08_a_restart_with_the_civil_clock_an_hour_back_empties_no_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let policy =
        "[[policy]]\nname = \"hourly\"\nalgorithm = \"token_bucket\"\nlimit = 10\nwindow_seconds = 36000\n";
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, policy).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let service = Tidegate::start(&arguments, &[]);
    assert_eq!([(); 2].map(|()| spend_one(&service)["remaining"].clone()), [9, 8]);
    service.signal("TERM");
    let data = service.path().join("tidegate-data");
    let (_saved, ended) = service.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);

    let kept = tempfile::tempdir().unwrap();
    fs::rename(&data, kept.path().join("tidegate-data")).unwrap();
    let library = support::faketime();
    let environment = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME", "-1h"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
    ];
    let again = Tidegate::start_in(kept, &arguments, &environment);
    assert_eq!(spend_one(&again), json!({"allowed": true, "remaining": 7}));
}
