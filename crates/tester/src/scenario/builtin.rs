//! The scenarios of the service reports, as files that are part of the binary.

/// Name and text, in the reports' order.
const BUILT_IN: [(&str, &str); 25] = [
    ("baseline", include_str!("../../../../scenarios/baseline.toml")),
    ("concurrent", include_str!("../../../../scenarios/concurrent.toml")),
    ("discover", include_str!("../../../../scenarios/discover.toml")),
    ("sustained", include_str!("../../../../scenarios/sustained.toml")),
    ("burst", include_str!("../../../../scenarios/burst.toml")),
    ("extreme", include_str!("../../../../scenarios/extreme.toml")),
    ("intake-light", include_str!("../../../../scenarios/intake-light.toml")),
    ("intake-medium", include_str!("../../../../scenarios/intake-medium.toml")),
    ("intake-high", include_str!("../../../../scenarios/intake-high.toml")),
    ("intake-max", include_str!("../../../../scenarios/intake-max.toml")),
    ("intake-stress", include_str!("../../../../scenarios/intake-stress.toml")),
    ("edge-100", include_str!("../../../../scenarios/edge-100.toml")),
    ("edge-500", include_str!("../../../../scenarios/edge-500.toml")),
    ("edge-1000", include_str!("../../../../scenarios/edge-1000.toml")),
    ("edge-2000", include_str!("../../../../scenarios/edge-2000.toml")),
    ("edge-5000", include_str!("../../../../scenarios/edge-5000.toml")),
    ("edge-10000", include_str!("../../../../scenarios/edge-10000.toml")),
    ("edge-ramp", include_str!("../../../../scenarios/edge-ramp.toml")),
    ("gateway-limiter-off", include_str!("../../../../scenarios/gateway-limiter-off.toml")),
    ("gateway-token-bucket", include_str!("../../../../scenarios/gateway-token-bucket.toml")),
    ("gateway-sliding-window", include_str!("../../../../scenarios/gateway-sliding-window.toml")),
    ("gateway-breaker-open", include_str!("../../../../scenarios/gateway-breaker-open.toml")),
    ("gateway-instances-1", include_str!("../../../../scenarios/gateway-instances-1.toml")),
    ("gateway-instances-2", include_str!("../../../../scenarios/gateway-instances-2.toml")),
    ("gateway-instances-3", include_str!("../../../../scenarios/gateway-instances-3.toml")),
];

/// The text of a built-in scenario.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Names of the built-in scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn read(name: &str) -> Scenario {
        Scenario::parse(built_in(name).unwrap(), |_| unreachable!("no data file is named")).unwrap()
    }

    #[test]
    fn every_built_in_scenario_is_valid_and_bears_its_name() {
        for name in names() {
            let scenario = read(name);
            assert_eq!(scenario.name, name);
            assert!(!scenario.about.is_empty() && !scenario.thresholds.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_reports_rows_are_what_they_were() {
        let requests = |name: &str| {
            let plan = read(name).steps[0].plan.clone();
            (plan.connections, plan.max_requests)
        };
        assert_eq!(requests("baseline"), (1, 1_000));
        assert_eq!(requests("concurrent"), (100, 10_000));
        assert_eq!(requests("extreme"), (200_000, 200_000));
        assert_eq!(requests("intake-light"), (20, 1_000));
        assert_eq!(requests("intake-stress"), (500, 10_000));
        let levels =
            |name: &str| read(name).steps.iter().map(|step| step.plan.connections).collect::<Vec<_>>();
        assert_eq!(levels("burst"), [10, 200, 5_000, 10]);
        assert_eq!(levels("edge-10000"), [10_000]);
        assert_eq!(read("sustained").steps[0].plan.measure_ms, 30_000);
    }
}
