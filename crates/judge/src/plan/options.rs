//! Bigger, more, nearer: each only as far as the report's cause supports it.

use serde::{Deserialize, Serialize};

use super::{Basis, Figure, Target};
use crate::diagnose::CauseName;
use crate::report::Report;
use crate::report::format::time;

/// Share of a CPU that is planned at most.
const CPU_PLANNED: f64 = 0.70;
/// Round trips below this are not a distance, in microseconds.
const DISTANCE_US: f64 = 1_000.0;

/// One way to reach the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOption {
    /// `vertical`, `horizontal` or `geographic`.
    pub name: String,
    /// Whether something measured supports it.
    pub supported: bool,
    /// What to do, or why not.
    pub advice: String,
    /// The figures behind it.
    pub figures: Vec<Figure>,
}

/// All three options.
pub(super) fn all(report: &Report, target: &Target, each: f64, instances: f64) -> Vec<PlanOption> {
    vec![horizontal(report, target, each, instances), vertical(report, target), geographic(report)]
}

fn option(name: &str, supported: bool, advice: impl Into<String>, figures: Vec<Figure>) -> PlanOption {
    PlanOption { name: name.to_owned(), supported, advice: advice.into(), figures }
}

fn horizontal(report: &Report, target: &Target, each: f64, instances: f64) -> PlanOption {
    let figures = vec![
        Figure::new("instances", instances, "", Basis::Extrapolated),
        Figure::new("rate of one, headroom taken off", each, "/s", Basis::Asked),
        Figure::new("rate of each", target.rate / instances, "/s", Basis::Extrapolated),
    ];
    match report.cause.name {
        CauseName::Upstream => option(
            "horizontal",
            false,
            "more instances share the upstream that is the limit already: scale that first",
            figures,
        ),
        CauseName::GeneratorCpu | CauseName::ClientPorts | CauseName::ClientDescriptors => option(
            "horizontal",
            false,
            "the client was the limit: what one instance can do is not known yet",
            figures,
        ),
        _ => option(
            "horizontal",
            true,
            "identical instances behind a load balancer; measure two before buying many",
            figures,
        ),
    }
}

fn vertical(report: &Report, target: &Target) -> PlanOption {
    let number = |name: &str| report.cause.numbers.get(name).copied();
    let capacity = report.capacity.map_or(0.0, |c| c.throughput);
    match report.cause.name {
        CauseName::ServerCpu => match (number("cpu_cores"), capacity > 0.0) {
            (Some(used), true) => {
                let per_request = used / capacity;
                let cores = (target.rate * per_request / CPU_PLANNED).ceil();
                option(
                    "vertical",
                    true,
                    "more cores; contention in the code may eat part of them",
                    vec![
                        Figure::new("CPU of one request", per_request * 1e6, "us", Basis::Measured),
                        Figure::new("cores at 70 % for the target", cores, "cores", Basis::Extrapolated),
                    ],
                )
            }
            _ => option(
                "vertical",
                false,
                "the CPU of one request was not measured: run with --pid",
                Vec::new(),
            ),
        },
        CauseName::HotThread => option(
            "vertical",
            false,
            "one thread is the limit: more cores stay idle, only a faster one helps",
            Vec::new(),
        ),
        CauseName::FixedConcurrency => match number("service_time_ms") {
            Some(ms) if ms > 0.0 => option(
                "vertical",
                true,
                "a larger pool in the same instance, as far as its CPU goes",
                vec![
                    Figure::new("service time", ms, "ms", Basis::Measured),
                    Figure::new("pool size now", number("pool_size").unwrap_or(0.0), "", Basis::Measured),
                    Figure::new(
                        "pool size for the target",
                        (target.rate * ms / 1e3 / (1.0 - target.headroom)).ceil(),
                        "",
                        Basis::Extrapolated,
                    ),
                ],
            ),
            _ => option("vertical", false, "the pool's service time was not measured", Vec::new()),
        },
        name => option(
            "vertical",
            false,
            format!("nothing measured says that a bigger machine would do more (cause: {})", name.as_str()),
            Vec::new(),
        ),
    }
}

fn geographic(report: &Report) -> PlanOption {
    let round_trip = report
        .observations
        .iter()
        .filter_map(|o| o.min_rtt_us)
        .chain(report.steps.iter().filter(|s| s.connect.count > 0).map(|s| s.connect.min_us as f64))
        .fold(f64::INFINITY, f64::min);
    if !round_trip.is_finite() || round_trip < DISTANCE_US {
        return option(
            "geographic",
            false,
            "no distance was measured: the test ran next to the server",
            Vec::new(),
        );
    }
    let p50 = report.levels.first().and_then(|l| l.p50_us).unwrap_or(round_trip);
    option(
        "geographic",
        true,
        format!(
            "an instance near these clients saves up to {} of {}; the rest is the server's own time",
            time(round_trip),
            time(p50)
        ),
        vec![
            Figure::new("round trip", round_trip / 1e3, "ms", Basis::Measured),
            Figure::new("median reply", p50 / 1e3, "ms", Basis::Measured),
            Figure::new(
                "median reply without the distance",
                (p50 - round_trip).max(0.0) / 1e3,
                "ms",
                Basis::Extrapolated,
            ),
            Figure::new("rate of one connection now", 1e6 / p50.max(1.0), "/s", Basis::Measured),
        ],
    )
}
