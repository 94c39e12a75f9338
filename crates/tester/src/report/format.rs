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

#[cfg(test)]
mod tests {
    use super::*;

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
