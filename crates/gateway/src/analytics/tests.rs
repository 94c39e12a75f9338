//! What is counted is neither lost nor counted twice, whatever its span, and a question about it is answered or refused.

use super::*;

const MINUTE: u64 = 60;

fn at(second: u64) -> Wall {
    Wall(second * 1_000_000_000)
}

fn labels(route: &str, status: u16) -> Labels {
    Labels { route: Some(route.into()), status, ..Labels::default() }
}

fn ask(analytics: &Analytics, now: u64, parameters: &[(&str, &str)]) -> serde_json::Value {
    analytics.json(&query(now, parameters).expect("a good question"))
}

fn query(now: u64, parameters: &[(&str, &str)]) -> Result<AnalyticsQuery, QueryMistake> {
    let owned: Vec<(String, String)> =
        parameters.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    AnalyticsQuery::read(&owned, at(now))
}

#[test]
fn minutes_become_hours_and_days_and_nothing_is_counted_twice_or_lost() {
    let analytics = Analytics::default();
    let first = 1_763_856_000;
    // Three days with a request each minute.
    for minute in 0..3 * 1_440 {
        let status = if minute % 10 == 0 { 429 } else { 200 };
        analytics.count(labels("a", status), 10, 1_000, at(first + minute * MINUTE));
        let all = analytics.counted();
        assert!(Step::ALL.iter().zip(&all.spans).all(|(step, spans)| spans.len() <= step.kept()));
    }
    let now = first + 3 * 86_400 - 1;
    let total = |parameters: &[(&str, &str)]| {
        let rows = ask(&analytics, now, parameters)["rows"].clone();
        let rows = rows.as_array().expect("rows").clone();
        (rows.len(), rows.iter().map(|row| row["requests"].as_u64().expect("a number")).sum::<u64>())
    };
    // The first of these minutes is in part within the last hour.
    assert_eq!(total(&[]), (1, 61));
    assert_eq!(total(&[("step", "minute"), ("from", "1970-01-01")]), (120, 120));
    assert_eq!(total(&[("step", "hour"), ("from", "1970-01-01")]), (48, 48 * 60));
    assert_eq!(total(&[("step", "day"), ("from", "1970-01-01"), ("by", "status")]), (6, 3 * 1_440));
    assert_eq!(total(&[("from", "1970-01-01")]), (1, 3 * 1_440));
    let whole = &ask(&analytics, now, &[("from", "1970-01-01")])["rows"][0];
    assert_eq!((&whole["succeeded"], &whole["rate_limited"]), (&(9 * 432).into(), &432.into()));
    assert_eq!((&whole["mean_ms"], &whole["bytes"]), (&1.0.into(), &43_200.into()));
    // A clock that goes back makes no minute again.
    analytics.count(labels("a", 200), 0, 1, at(first));
    assert_eq!(total(&[("from", "1970-01-01")]).1, 3 * 1_440 + 1);
}

#[test]
fn what_there_is_no_room_for_is_counted_as_others() {
    let analytics = Analytics::default();
    for number in 0..MAX_SERIES + 50 {
        analytics.count(labels(&format!("r{number}"), 200), 0, 1, at(1_000_000));
    }
    assert_eq!(analytics.stats(), AnalyticsStats { series: MAX_SERIES + 1, others: 50 });
    let answer = ask(&analytics, 1_000_000, &[("by", "route"), ("route", "r7")]);
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(1));
    let all = ask(&analytics, 1_000_000, &[("by", "route")]);
    let others = all["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["route"] == "others"));
    assert_eq!(others.expect("others")["requests"], 50);
}

#[test]
fn a_table_is_quoted_and_a_bad_question_is_refused() {
    let analytics = Analytics::default();
    analytics.count(labels("=a,\"b\"", 503), 1, 2_000, at(1_000_000));
    let csv = analytics.csv(&query(1_000_000, &[("by", "status,route"), ("format", "csv")]).expect("good"));
    let mut lines = csv.split("\r\n");
    let head = "route,status,requests,succeeded,rate_limited,client_errors,failed,bytes,mean_ms,p50_ms,p95_ms,p99_ms";
    assert_eq!(lines.next(), Some(head));
    let row = lines.next().expect("a row");
    assert!(row.starts_with("\"'=a,\"\"b\"\"\",503,1,0,0,0,1,1,2.0,"), "{row}");
    for (name, text) in
        [("by", "client"), ("step", "week"), ("from", "yesterday"), ("format", "xml"), ("limit", "1")]
    {
        assert_eq!(query(0, &[(name, text)]).expect_err("refused").parameter, name);
    }
    assert!(query(0, &[("by", "key"), ("by", "route")]).is_err());
}
