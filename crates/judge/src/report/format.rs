//! Figures for readers: three digits, a unit, no false precision.

/// A count or rate: 12, 340, 1,250, 12,500, 1.25M.
#[must_use]
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() >= 9_999_500.0 {
        return format!("{:.1}M", value / 1e6);
    }
    if value != 0.0 && value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value <= -0.5 { format!("-{grouped}") } else { grouped }
}

/// A time given in microseconds: 85 us, 1.25 ms, 340 ms, 1.2 s.
#[must_use]
pub fn time(us: f64) -> String {
    match us {
        _ if !us.is_finite() => "-".to_owned(),
        _ if us < 999.5 => format!("{us:.0} us"),
        _ if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        _ if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        _ if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        _ if us < 99_950_000.0 => format!("{:.2} s", us / 1e6),
        _ => format!("{:.0} s", us / 1e6),
    }
}

/// A share as a percentage: 0 %, 0.05 %, 12.3 %.
#[must_use]
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        v if v < 0.005 => "0 %".to_owned(),
        v if v < 1.0 => format!("{value:.2} %"),
        v if v < 99.95 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// Bytes: 512 B, 1.5 KiB, 24 GiB.
#[must_use]
pub fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 || unit == "GiB" {
            let digits = usize::from(scaled < 10.0 && unit != "B");
            return format!("{scaled:.digits$} {unit}");
        }
        scaled /= 1024.0;
    }
    String::new()
}

/// A civil time in UTC, RFC 3339 to the second, from nanoseconds since the Unix epoch.
///
/// Days to date as in Hinnant, "chrono-Compatible Low-Level Date Algorithms".
#[must_use]
pub fn utc(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, whose leap day then is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_around_leap_days() {
        let dates =
            [0, 951_782_400, 951_868_800, 1_763_640_000, 4_107_542_399].map(|s| utc(s * 1_000_000_000));
        let expected = [
            "1970-01-01T00:00:00Z",
            "2000-02-29T00:00:00Z",
            "2000-03-01T00:00:00Z",
            "2025-11-20T12:00:00Z",
            "2100-02-28T23:59:59Z",
        ];
        assert_eq!(dates, expected.map(String::from));
    }

    #[test]
    fn figures_as_people_write_them() {
        let counts = [0.0, 0.25, 12.0, 1_249.6, 999.7, 12_500.0, 12_345_678.0, -1_234.0, f64::NAN].map(count);
        assert_eq!(
            counts,
            ["0", "0.25", "12", "1,250", "1,000", "12,500", "12.3M", "-1,234", "-"].map(String::from)
        );
        let times = [85.0, 1_250.0, 10_055.0, 340_000.0, 1_200_000.0, 120_000_000.0].map(time);
        assert_eq!(times, ["85 us", "1.25 ms", "10.1 ms", "340 ms", "1.20 s", "120 s"].map(String::from));
        assert_eq!(
            [0.0, 0.0005, 0.123, 1.0].map(percent),
            ["0 %", "0.05 %", "12.3 %", "100 %"].map(String::from)
        );
        assert_eq!([512, 1_536, 25_769_803_776].map(bytes), ["512 B", "1.5 KiB", "24 GiB"].map(String::from));
    }
}
