//! Durations in flags: `2s`, `500ms`, `1.5m`, `2h`, `30d`. A number alone is in the unit that the flag has always had.

use std::time::Duration;

const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY)];
const SECOND: f64 = 1.0;
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;

/// A number alone is of seconds.
pub(super) fn of_seconds(text: &str) -> Result<Duration, String> {
    read(text, SECOND, "seconds")
}

/// A number alone is of hours.
pub(super) fn of_hours(text: &str) -> Result<Duration, String> {
    read(text, HOUR, "hours")
}

/// A number alone is of days.
pub(super) fn of_days(text: &str) -> Result<Duration, String> {
    read(text, DAY, "days")
}

/// Seconds; a number alone is of them.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    Ok(of_seconds(text)?.as_secs_f64())
}

/// Minutes; a number alone is of them.
pub(super) fn minutes(text: &str) -> Result<f64, String> {
    Ok(read(text, MINUTE, "minutes")?.as_secs_f64() / MINUTE)
}

/// Milliseconds; a number alone is of them.
pub(super) fn millis(text: &str) -> Result<f64, String> {
    Ok(read(text, 0.001, "milliseconds")?.as_secs_f64() * 1e3)
}

fn read(text: &str, alone: f64, unit: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "" => Some(alone),
        stated => UNITS.iter().find(|(name, _)| *name == stated).map(|(_, seconds)| *seconds),
    };
    let value = number.parse::<f64>().ok().filter(|value| *value >= 0.0);
    let duration =
        value.zip(factor).and_then(|(value, factor)| Duration::try_from_secs_f64(value * factor).ok());
    duration.ok_or_else(|| format!("expected a duration, as 500ms, 2s, 5m, 1h or 1d, or a number of {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_in_the_flags_own_unit_and_any_unit_can_be_said() {
        for (text, expected) in
            [("2", 2.0), ("2s", 2.0), ("500ms", 0.5), ("1.5m", 90.0), ("1h", 3_600.0), ("0", 0.0)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert_eq!((minutes("15"), minutes("90s")), (Ok(15.0), Ok(1.5)));
        assert_eq!((millis("20"), millis("2s")), (Ok(20.0), Ok(2_000.0)));
        assert_eq!(
            (of_days("30"), of_days("12h")),
            (Ok(Duration::from_secs(2_592_000)), Ok(Duration::from_secs(43_200)))
        );
        assert_eq!(of_hours("0"), Ok(Duration::ZERO));
        for bad in ["", "s", "-1", "2x", "2 s", "1m30s", "inf", "NaN", "1e400", "2S", "\u{fc}s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
