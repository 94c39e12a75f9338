//! `docs/images/knee.svg` and `planned-send.svg`: a service that exists only as a queue, measured and judged as any other.
//!
//! The files are committed, and this test says when one is not what the code finds: `INSTA_UPDATE=always` writes them anew.

#[path = "../../../algorithms/tests/it/support/svg.rs"]
mod svg;

use std::fmt::Write;

use svg::{LEFT, WIDTH, assert_is_kept, frame, text};
use tidegate_judge::discover::{Level, Settings, discover};
use tidegate_judge::measurement::{Bench, Loop, StepPlan};
use tidegate_judge::simulated::Service;
use tidegate_judge::threshold::Metric;

const TOP: f64 = 52.0;
const BOTTOM: f64 = 222.0;

fn path(svg: &mut String, class: &str, points: impl Iterator<Item = (f64, f64)>) {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    writeln!(svg, r#"<path class="{class}" d="M{}"/>"#, points.join("L")).unwrap();
}

/// Where a number of connections is: each doubling is as far as the one before.
fn x(connections: f64, most: f64) -> f64 {
    LEFT + WIDTH * connections.log2() / most.log2()
}

#[test]
fn the_knee_is_where_more_connections_only_wait_longer() {
    let mut service = Service::new(8, 10_000.0);
    service.spread = 0.5;
    service.coherency = 6e-6;
    let levels = [1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256].map(f64::from).to_vec();
    let settings = Settings { levels, ..Settings::default() };
    let found = discover(&mut service, settings).unwrap().outcome();
    let knee = found.knee.unwrap();
    let capacity = found.capacity.unwrap().throughput;
    let levels: Vec<&Level> = found.levels.iter().collect();
    let rate = |level: &Level| level.throughput().unwrap().mean;
    let slowest = levels.iter().map(|level| level.figure(Metric::P99)).fold(0.0, f64::max);
    let y = |value: f64, most: f64| BOTTOM - (BOTTOM - TOP) * value / (most * 1.05);
    let mut svg = frame(
        288.0,
        "8 workers, 10 ms a request, closed loop",
        "Replies per second grow with the connections up to the knee; from there on only the time to a reply grows.",
        &format!(
            "knee: {} in flight, {:.0}/s, p99 {:.0} ms",
            knee.concurrency,
            knee.throughput,
            knee.p99_us / 1e3
        ),
    );
    let knee_at = x(knee.concurrency, 256.0);
    writeln!(svg, r#"<path class="edge" d="M{knee_at:.1} 40V{BOTTOM}"/>"#).unwrap();
    text(&mut svg, "small", knee_at + 6.0, 48.0, "start", "the knee");
    path(&mut svg, "first", levels.iter().map(|it| (x(it.load, 256.0), y(rate(it), capacity))));
    path(&mut svg, "second", levels.iter().map(|it| (x(it.load, 256.0), y(it.figure(Metric::P99), slowest))));
    let beside = levels.iter().find(|it| it.load == 64.0).unwrap();
    let (rates, times) = (y(rate(beside), capacity), y(beside.figure(Metric::P99), slowest));
    text(&mut svg, "small", x(64.0, 256.0), rates.round() - 9.0, "middle", "replies per second");
    text(&mut svg, "small", x(64.0, 256.0) - 6.0, times.round() - 9.0, "end", "p99 of the time to a reply");
    writeln!(svg, r#"<path class="axis" d="M{LEFT} {BOTTOM}h{WIDTH}"/>"#).unwrap();
    for connections in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0] {
        text(&mut svg, "small", x(connections, 256.0), BOTTOM + 17.0, "middle", &connections.to_string());
    }
    text(&mut svg, "small", LEFT - 10.0, BOTTOM + 17.0, "end", "connections");
    for (number, zone) in found.zones.iter().enumerate() {
        let edge = |left: f64, right: f64| f64::midpoint(x(left, 256.0), x(right, 256.0));
        let from = found.zones[..number].last().map_or(LEFT, |before| edge(before.to, zone.from) + 1.5);
        let to = found.zones.get(number + 1).map_or(LEFT + WIDTH, |next| edge(zone.to, next.from) - 1.5);
        let name = format!("{:?}", zone.zone).to_lowercase();
        let class = if name == "optimal" { "held" } else { "gone" };
        writeln!(
            svg,
            r#"<rect class="{class}" x="{from:.1}" y="252" width="{:.1}" height="20" rx="3"/>"#,
            to - from
        )
        .unwrap();
        text(&mut svg, "small", f64::midpoint(from, to), 266.0, "middle", &name);
    }
    text(&mut svg, "small", LEFT - 10.0, 266.0, "end", "zones");
    assert_is_kept("knee", &(svg + "</svg>\n"));
}

#[test]
fn a_frozen_server_shows_from_the_planned_send_alone() {
    let mut service = Service::new(50, 10_000.0);
    service.stall_us = Some((10_000_000.0, 1_000_000.0));
    let plan = StepPlan {
        connections: 50,
        discipline: Loop::Open { rate: 1_000.0, poisson: false },
        warmup_ms: 0,
        measure_ms: 10_000,
        max_requests: 0,
    };
    let found = service.run(&plan).unwrap();
    let percentiles = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999];
    let at = |number: usize| LEFT + 30.0 + (WIDTH - 60.0) * number as f64 / (percentiles.len() - 1) as f64;
    let (top, bottom) = (TOP + 8.0, BOTTOM - 30.0);
    let y = |us: u64| bottom - (bottom - top) * us as f64 / 1_050_000.0;
    let mut svg = frame(
        238.0,
        "a server that stands still for one second of ten",
        "Counted from the planned send the stall is in every percentile from the ninetieth on; counted from the send hardly any request shows it.",
        "1,000 requests a second on 50 connections",
    );
    for (class, latency) in [("first", &found.response), ("second", &found.service)] {
        let value = |quantile: f64| latency.value_at_quantile(quantile);
        path(&mut svg, class, percentiles.iter().enumerate().map(|(number, it)| (at(number), y(value(*it)))));
        for (number, quantile) in percentiles.iter().enumerate() {
            let us = value(*quantile);
            if class == "first" || us != found.response.value_at_quantile(*quantile) {
                let above = if class == "first" { -7.0 } else { 16.0 };
                let said = format!("{:.0} ms", us as f64 / 1e3);
                text(&mut svg, "small", at(number), (y(us) + above).round(), "middle", &said);
            }
        }
    }
    text(&mut svg, "small", at(3) - 24.0, 84.0, "end", "from the planned send");
    text(&mut svg, "small", at(3), bottom - 22.0, "middle", "from the send");
    writeln!(svg, r#"<path class="axis" d="M{LEFT} {:.0}h{WIDTH}"/>"#, bottom + 22.0).unwrap();
    for (number, quantile) in percentiles.iter().enumerate() {
        text(&mut svg, "small", at(number), bottom + 38.0, "middle", &format!("p{}", quantile * 100.0));
    }
    assert_is_kept("planned-send", &(svg + "</svg>\n"));
}
