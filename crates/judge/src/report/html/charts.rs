//! The report's charts: what each one shows.

use super::svg::{Axis, Chart};
use crate::discover::zones::Zone;
use crate::record::{LatencySummary, StepRecord};
use crate::report::format::{count, percent, time};
use crate::report::{LevelRow, Report};

/// Throughput against load, with intervals, fit, zones and knee.
pub(super) fn throughput(report: &Report) -> String {
    let loads = || report.levels.iter().map(|l| l.load);
    let rates = report.levels.iter().filter_map(|l| Some(l.interval?.high.max(l.throughput?)));
    let mut chart = Chart::new(Axis::log(loads()), Axis::linear(rates), count, count);
    zones(report, &mut chart);
    if let Some(usl) = report.usl.filter(|_| report.is_closed()) {
        let (low, high) = loads().fold((f64::INFINITY, 1.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        let points: Vec<(f64, f64)> =
            (0..=60).map(|i| low * (high / low).powf(f64::from(i) / 60.0)).map(|n| (n, usl.at(n))).collect();
        chart.line("fit", if usl.poor { "USL fit (poor)" } else { "USL fit" }, &points);
    }
    let measured: Vec<&LevelRow> = report.levels.iter().filter(|l| l.throughput.is_some()).collect();
    let line: Vec<(f64, f64)> = measured.iter().filter_map(|l| Some((l.load, l.throughput?))).collect();
    chart.line("main", "measured, 95 % interval", &line);
    for row in &measured {
        if let Some(i) = row.interval {
            chart.whisker("main", row.load, i.low, i.high);
        }
    }
    let dots: Vec<(f64, f64, String)> = measured
        .iter()
        .filter_map(|l| {
            Some((l.load, l.throughput?, format!("{} at {}", count(l.throughput?), count(l.load))))
        })
        .collect();
    chart.dots("main", "", &dots);
    if let Some(at) = knee_load(report) {
        chart.marker("knee", "knee", at);
    }
    chart.figure("Throughput against load", report.load_unit(), "good replies per second")
}

/// Latency percentiles against load.
pub(super) fn latency(report: &Report) -> String {
    type Pick = fn(&LevelRow) -> Option<f64>;
    let picks: [(&str, &str, Pick); 3] =
        [("p50", "p50", |l| l.p50_us), ("p95", "p95", |l| l.p95_us), ("p99", "p99", |l| l.p99_us)];
    let all = report.levels.iter().flat_map(|l| [l.p50_us, l.p95_us, l.p99_us]).flatten();
    let loads = Axis::log(report.levels.iter().map(|l| l.load));
    let mut chart = Chart::new(loads, Axis::log(all), count, time);
    zones(report, &mut chart);
    for (class, label, pick) in picks {
        let points: Vec<(f64, f64)> = report.levels.iter().filter_map(|l| Some((l.load, pick(l)?))).collect();
        let titled: Vec<(f64, f64, String)> =
            points.iter().map(|&(x, y)| (x, y, format!("{label} {} at {}", time(y), count(x)))).collect();
        chart.line(class_of(class), label, &points);
        chart.dots(class_of(class), "", &titled);
    }
    if let Some(at) = knee_load(report) {
        chart.marker("knee", "knee", at);
    }
    chart.figure("Response time against load", report.load_unit(), "time from the planned send, log scale")
}

/// Histogram of the response time at one step.
pub(super) fn histogram(step: &StepRecord) -> String {
    let buckets = &step.response.histogram;
    let shares: Vec<f64> = buckets.iter().map(|b| b.1 as f64 / step.response.count.max(1) as f64).collect();
    let edges = buckets.iter().flat_map(|b| [b.0 as f64 / 1.05, b.0 as f64]);
    let mut chart = Chart::new(Axis::log(edges), Axis::linear(shares.iter().copied()), time, percent);
    for (bucket, &share) in buckets.iter().zip(&shares) {
        let end = bucket.0 as f64;
        chart.bar("main", end / 1.05, end, share, &format!("up to {}: {} replies", time(end), bucket.1));
    }
    let title = format!("Response time at {} (histogram)", count(step.load()));
    chart.figure(&title, "response time", "share of replies")
}

/// Percentile curve: the further right, the rarer.
pub(super) fn percentiles(step: &StepRecord) -> String {
    let response = curve(&step.response);
    let service = curve(&step.service);
    let all = || response.iter().chain(&service);
    // x is 1 / (1 - quantile): 10 is p90, 100 is p99.
    let quantile = |x: f64| {
        let text = format!("{:.4}", 100.0 * (1.0 - 1.0 / x.max(1.0)));
        format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    let axes = (Axis::log(all().map(|p| p.0)), Axis::log(all().map(|p| p.1)));
    let mut chart = Chart::new(axes.0, axes.1, quantile, time);
    chart.line("main", "response (from the planned send)", &response);
    chart.line("fit", "service (from the actual send)", &service);
    chart.figure(&format!("Percentiles at {}", count(step.load())), "percentile", "time, log scale")
}

fn curve(latency: &LatencySummary) -> Vec<(f64, f64)> {
    let mut seen = 0;
    latency
        .histogram
        .iter()
        .filter_map(|&(end, n)| {
            seen += n;
            let beyond = latency.count.saturating_sub(seen);
            // The last bucket has nothing beyond: the largest sample stands at one in twice the count.
            let x = latency.count as f64 / (beyond as f64).max(0.5);
            (x > 1.0).then_some((x, (end as f64).min(latency.max_us as f64)))
        })
        .collect()
}

/// The whole run over time: good, denied and failed per second, step after step.
pub(super) fn timeline(report: &Report) -> String {
    let mut at = 0.0;
    let (mut good, mut denied, mut errors, mut starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in &report.steps {
        let seconds = step.bucket_ms.max(1) as f64 / 1e3;
        starts.push(at);
        for bucket in &step.timeline {
            good.push((at, bucket.good as f64 / seconds));
            denied.push((at, bucket.denied as f64 / seconds));
            errors.push((at, bucket.errors as f64 / seconds));
            at += seconds;
        }
    }
    let highest = good.iter().chain(&denied).chain(&errors).map(|p| p.1);
    let seconds = |v: f64| format!("{} s", count(v));
    let mut chart = Chart::new(Axis::linear([0.0, at].into_iter()), Axis::linear(highest), seconds, count);
    for start in starts {
        chart.marker("step", "step", start);
    }
    for (class, label, points) in
        [("main", "good", &good), ("p95", "denied", &denied), ("p99", "errors", &errors)]
    {
        if points.iter().any(|p| p.1 > 0.0) {
            chart.line(class, label, &thinned(points));
        }
    }
    chart.figure("Timeline, warm-up left out", "measured time", "per second")
}

/// At most 1,200 points: neighbours are averaged.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(1_200).max(1);
    points
        .chunks(group)
        .map(|part| (part[0].0, part.iter().map(|p| p.1).sum::<f64>() / part.len() as f64))
        .collect()
}

/// Errors by class as bars.
pub(super) fn errors(totals: &[(String, u64)]) -> String {
    let most = totals.iter().map(|t| t.1 as f64).fold(1.0, f64::max);
    let mut chart = Chart::new(
        Axis::linear([0.0, totals.len() as f64].into_iter()),
        Axis::linear([0.0, most].into_iter()),
        |_| String::new(),
        count,
    );
    // A single class is a bar too, not a wall.
    let half = (0.15 * totals.len() as f64).min(0.4);
    for (i, (class, n)) in totals.iter().enumerate() {
        let middle = i as f64 + 0.5;
        chart.bar("p99", middle - half, middle + half, *n as f64, &format!("{class}: {n}"));
    }
    // The names of many classes are wider than a chart; below it they have room.
    for (class, n) in totals {
        chart.note("p99", format!("{class}: {}", count(*n as f64)));
    }
    chart.figure("Errors by class", "from left to right as below", "errors")
}

fn class_of(name: &str) -> &'static str {
    match name {
        "p50" => "main",
        "p95" => "p95",
        _ => "p99",
    }
}

/// Where on the load axis the knee is.
fn knee_load(report: &Report) -> Option<f64> {
    let knee = report.knee?;
    if report.is_closed() { Some(knee.concurrency) } else { report.capacity.map(|c| c.load) }
}

fn zones(report: &Report, chart: &mut Chart) {
    let mut from = report.levels.first().map_or(1.0, |l| l.load);
    for (i, zone) in report.zones.iter().enumerate() {
        // A zone ends half way to the next one's first level.
        let to = report.zones.get(i + 1).map_or(zone.to, |next| (zone.to * next.from).sqrt());
        let class = match zone.zone {
            Zone::Optimal => "zone-optimal",
            Zone::Stressed => "zone-stressed",
            Zone::Degraded => "zone-degraded",
            Zone::Broken => "zone-broken",
        };
        chart.band(class, from, to);
        from = to;
    }
}
