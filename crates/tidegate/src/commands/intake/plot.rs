//! A line of points drawn with characters, for a look at what arrived.

use tidegate_wire::metrics::rfc3339;

/// Rows of a plot, without its axis.
const ROWS: usize = 12;
/// Fewest columns of a plot.
const NARROWEST: usize = 10;

/// Draws points of `step` milliseconds each from `start` to `end`, in so many columns of a terminal.
pub(super) fn plot(points: &[(i64, f64)], start: i64, end: i64, step: i64, columns: usize) -> String {
    let (low, high) = bounds(points);
    let label = |row: usize| {
        let part = row as f64 / (ROWS - 1) as f64;
        number(high - (high - low) * part)
    };
    let wide = (0..ROWS).map(|row| label(row).len()).max().unwrap_or(0);
    let columns = columns.saturating_sub(wide + 3).max(NARROWEST);
    let heights = heights(points, start, end, step, columns);
    let mut out = String::new();
    for row in 0..ROWS {
        let marks: String =
            heights.iter().map(|height| if *height == Some(row) { '•' } else { ' ' }).collect();
        out.push_str(&format!("{:>wide$} │{}\n", label(row), marks.trim_end()));
    }
    out.push_str(&format!("{:>wide$} └{}\n", "", "─".repeat(columns)));
    let (first, last) = (clock(start), clock(end));
    let gap = columns.saturating_sub(first.len() + last.len());
    out.push_str(&format!("{:>wide$}  {first}{}{last}\n", "", " ".repeat(gap)));
    out
}

/// The least and the greatest value; of equal ones, something around them.
fn bounds(points: &[(i64, f64)]) -> (f64, f64) {
    let finite = points.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
    let (low, high) = finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    match (low < high, low.is_finite()) {
        (true, _) => (low, high),
        (false, true) => (low - 1.0, high + 1.0),
        (false, false) => (0.0, 1.0),
    }
}

/// The row of each column that has a point.
fn heights(points: &[(i64, f64)], start: i64, end: i64, step: i64, columns: usize) -> Vec<Option<usize>> {
    let (low, high) = bounds(points);
    let length = i128::from(end) - i128::from(start);
    let row = |value: f64| {
        // Invariant: between 0 and ROWS - 1, because the value is between the bounds.
        (((high - value) / (high - low)) * (ROWS - 1) as f64).round().clamp(0.0, (ROWS - 1) as f64) as usize
    };
    let column = |column: usize| {
        let at = i128::from(start) + length * column as i128 / columns as i128;
        let next = i128::from(start) + length * (column as i128 + 1) / columns as i128;
        // The last point that begins in this column, or else one whose step lasts until it.
        let before = points.partition_point(|(time, _)| i128::from(*time) < next.max(at + 1));
        let (time, value) = points.get(before.checked_sub(1)?)?;
        (i128::from(*time) + i128::from(step) > at && value.is_finite()).then(|| row(*value))
    };
    (0..columns).map(column).collect()
}

/// A number with as many digits as a person compares.
fn number(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e9).contains(&size) => format!("{value:.3e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Day and time of day in UTC.
fn clock(millis: i64) -> String {
    let time = rfc3339::format(millis).unwrap_or(*b"                        ");
    String::from_utf8_lossy(&time[..19]).replace('T', " ") + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: (i64, i64) = (1_795_420_800_000, 1_795_420_860_000);

    #[test]
    fn a_rising_line_rises_from_corner_to_corner() {
        let points: Vec<(i64, f64)> =
            (0..60_u8).map(|second| (MINUTE.0 + i64::from(second) * 1_000, f64::from(second))).collect();
        let drawn = plot(&points, MINUTE.0, MINUTE.1, 1_000, 68);
        let rows: Vec<&str> = drawn.lines().collect();
        assert_eq!(rows.len(), ROWS + 2);
        assert!(rows[0].starts_with("59.00 │") && rows[0].ends_with('•'), "{drawn}");
        assert!(rows[ROWS - 1].starts_with(" 0.00 │•"), "{drawn}");
        assert!(
            rows[ROWS + 1].contains("2026-11-23 08:00:00Z")
                && rows[ROWS + 1].ends_with("2026-11-23 08:01:00Z")
        );
        assert_eq!(drawn.matches('•').count(), 60, "a point in each column: {drawn}");
    }

    #[test]
    fn what_is_missing_is_left_out_and_nothing_panics() {
        let hole = [(MINUTE.0, 1.0), (MINUTE.0 + 50_000, 1.0)];
        let drawn = plot(&hole, MINUTE.0, MINUTE.1, 10_000, 69);
        let row = drawn.lines().find(|row| row.contains('•')).unwrap();
        assert!(row.contains("•          "), "{drawn}");
        for points in [&[][..], &[(MINUTE.0, f64::INFINITY)], &[(i64::MIN, -1e300), (i64::MAX, 1e300)]] {
            for columns in [0, 1, 500] {
                assert_eq!(plot(points, MINUTE.0, MINUTE.1, 1, columns).lines().count(), ROWS + 2);
                plot(points, i64::MIN, i64::MAX, i64::MAX, columns);
            }
        }
    }
}
