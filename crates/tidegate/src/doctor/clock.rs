//! This machine's clock: kept by somebody, cheap to read, and not being set while the doctor looks.
//!
//! Counters in memory run on uptime, so a clock that is set locks out no client. Calendar quotas, tokens and
//! certificates go by the date.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_algorithms::time::{Now, SECOND};
use tidegate_net::clock::Clock;

use super::Finding;

const AREA: &str = "clock";
/// 2026-01-01: this program is newer than any clock before.
const BUILT_AFTER: u64 = 1_767_225_600;
/// The two clocks may drift apart by this while the doctor looks.
const MOST_DRIFT: Duration = Duration::from_millis(100);
/// What systemd-timesyncd leaves once the clock is synchronised, and where other keepers say that they run.
const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";
const KEEPERS: [&str; 5] =
    ["run/chrony/chronyd.pid", "run/chronyd.pid", "run/ntpd.pid", "run/ntpsec/ntpd.pid", "run/openntpd.pid"];
/// Sources of the kernel that take microseconds for a reading; a decision has one.
const SLOW: [&str; 3] = ["hpet", "acpi_pm", "jiffies"];
const SOURCE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The clocks as of the beginning.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Clock,
    began: Now,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenClock {
    /// Civil time, in seconds.
    seconds: u64,
    /// How much further the civil clock went than the uptime.
    leap: Duration,
    keeper: Keeper,
    /// What the kernel reads time from.
    source: String,
}

/// Who keeps the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Keeper {
    Synchronized,
    Runs(String),
    Unknown,
}

impl Watch {
    pub(super) fn start() -> Self {
        let clock = Clock::start();
        Self { clock, began: clock.now() }
    }

    pub(super) fn end(&self) -> SeenClock {
        let (began, now) = (self.began, self.clock.now());
        // The civil clock may have gone back.
        let passed = u128::from(now.tick.since(began.tick));
        let leap = (u128::from(began.wall.0) + passed).abs_diff(now.wall.0.into());
        let source = fs::read_to_string(Path::new("/").join(SOURCE)).unwrap_or_default();
        SeenClock {
            seconds: now.wall.0 / SECOND,
            leap: Duration::from_nanos(u64::try_from(leap).unwrap_or(u64::MAX)),
            keeper: keeper(Path::new("/")),
            source: source.trim().to_owned(),
        }
    }
}

fn keeper(root: &Path) -> Keeper {
    if root.join(SYNCHRONIZED).exists() {
        return Keeper::Synchronized;
    }
    let running = KEEPERS.iter().find(|file| root.join(file).exists());
    running.map_or(Keeper::Unknown, |file| Keeper::Runs(format!("/{file}")))
}

/// What follows from it.
pub(super) fn judge(seen: &SeenClock) -> Vec<Finding> {
    let mut found = vec![match &seen.keeper {
        Keeper::Synchronized => Finding::ok(AREA, "systemd-timesyncd keeps it"),
        Keeper::Runs(file) => Finding::ok(AREA, format!("a daemon keeps it ({file})")),
        // A container, or a virtual machine that its host keeps in time.
        Keeper::Unknown => {
            Finding::ok(AREA, "no time service is found here; in a container the host sets the clock")
        }
    }];
    if seen.seconds < BUILT_AFTER {
        found.push(Finding::problem(
            AREA,
            "it shows a time before this program was made: certificates and tokens are judged wrongly",
            "set it, and keep it by NTP (chrony or systemd-timesyncd)",
        ));
    }
    if seen.leap > MOST_DRIFT {
        found.push(Finding::warning(
            AREA,
            format!("it was set by {:.1} s while the doctor looked", seen.leap.as_secs_f64()),
            "have NTP slew it instead of setting it, and only one keeper at work",
        ));
    }
    if SLOW.contains(&seen.source.as_str()) {
        found.push(Finding::warning(
            AREA,
            format!("the kernel reads it from {}, which takes microseconds each time", seen.source),
            "boot with a faster source: tsc, or the one of the hypervisor (kvm-clock, hyperv_clocksource_tsc_page, xen)",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn each_fault_of_the_clock_has_its_finding() {
        let sound = SeenClock {
            seconds: BUILT_AFTER,
            leap: Duration::from_millis(3),
            keeper: Keeper::Unknown,
            source: "tsc".into(),
        };
        let worst = |seen: &SeenClock| judge(seen).into_iter().max_by_key(|it| it.level).unwrap();
        assert_eq!(worst(&sound).level, Level::Ok);
        assert_eq!(worst(&SeenClock { seconds: 0, ..sound.clone() }).level, Level::Problem);
        let set = worst(&SeenClock { leap: Duration::from_secs(5), ..sound.clone() });
        assert!(set.level == Level::Warning && set.what.contains("by 5.0 s"));
        assert_eq!(worst(&SeenClock { source: "hpet".into(), ..sound }).level, Level::Warning);
    }

    #[test]
    fn who_keeps_the_clock_is_read_from_the_files_of_the_keepers() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(keeper(folder.path()), Keeper::Unknown);
        for (file, expected) in
            [(KEEPERS[0], Keeper::Runs(format!("/{}", KEEPERS[0]))), (SYNCHRONIZED, Keeper::Synchronized)]
        {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
            assert_eq!(keeper(folder.path()), expected);
        }
    }
}
