//! The live view of a run, as lines: for a terminal that can be redrawn, and for one that cannot.
//!
//! Pure: a [`View`] in, text out. The owner of the terminal decides when to draw, how wide it is and whether it may
//! use colour, and moves the cursor. The plain form is one line per call, so that a log of a run reads like a table.

use crate::discover::{Level, Mode};
use crate::report::format::{count, percent, time};
use crate::threshold::Metric;

/// Levels shown at a time, the ladder's latest, where the terminal has the rows for them.
const LEVELS_SHOWN: usize = 12;
/// Rows that the view needs beside its levels, the cursor's included.
const OTHER_ROWS: usize = 9;
/// Narrowest terminal that is laid out for, in columns.
const NARROWEST: usize = 40;
/// Widest bar, in columns.
const WIDEST_BAR: usize = 40;

/// The step that is running.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    /// Connections, or requests per second offered.
    pub load: f64,
    /// Seconds since the step's first request.
    pub elapsed_seconds: f64,
    /// Seconds that it takes, warm-up included.
    pub planned_seconds: f64,
    /// Good replies per second, just now.
    pub throughput: f64,
    /// Median response time just now, in microseconds.
    pub p50_us: f64,
    /// 99th percentile just now, in microseconds.
    pub p99_us: f64,
    /// Requests on the wire.
    pub in_flight: u64,
    /// Denials of the step so far.
    pub denied: u64,
    /// Errors of the step so far.
    pub errors: u64,
}

/// All that the view shows.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is tested.
    pub target: &'a str,
    /// Which quantity is raised.
    pub mode: Mode,
    /// The levels measured so far, by rising load.
    pub levels: &'a [Level],
    /// Steps done.
    pub steps: usize,
    /// Most steps that the run may take.
    pub max_steps: usize,
    /// The running step; none between steps.
    pub running: Option<Running>,
}

/// One line for a log: no control characters, no colour.
#[must_use]
pub fn plain(view: &View<'_>) -> String {
    let Some(r) = view.running else {
        return format!("step {} of at most {}: starting", view.steps + 1, view.max_steps);
    };
    format!(
        "step {} {} {}: {:.0}/{:.0} s, {}/s, p50 {}, p99 {}, {} in flight, {} denied, {} errors",
        view.steps + 1,
        count(r.load),
        unit(view.mode),
        r.elapsed_seconds,
        r.planned_seconds,
        count(r.throughput),
        time(r.p50_us),
        time(r.p99_us),
        count(r.in_flight as f64),
        count(r.denied as f64),
        count(r.errors as f64),
    )
}

/// The running step alone, for a terminal of so many columns.
#[must_use]
pub fn step(running: &Running, columns: usize) -> Vec<String> {
    let columns = columns.max(NARROWEST);
    self::running(running, columns).into_iter().map(|line| cut(&line, columns)).collect()
}

/// The whole view for a terminal of so many columns and rows: no line is wider than it, and it is no higher
/// where there is room for one level. Text from outside loses its control characters.
#[must_use]
pub fn screen(view: &View<'_>, columns: usize, rows: usize, colour: bool) -> Vec<String> {
    let columns = columns.max(NARROWEST);
    let shown = rows.saturating_sub(OTHER_ROWS).clamp(1, LEVELS_SHOWN);
    let mut lines = ladder(view, columns, shown, colour);
    if let Some(r) = &view.running {
        lines.push(String::new());
        lines.extend(running(r, columns).into_iter().map(|line| cut(&line, columns)));
    }
    lines
}

/// Title, heading and the last levels, at most `shown` of them.
fn ladder(view: &View<'_>, columns: usize, shown: usize, colour: bool) -> Vec<String> {
    let target: String = view.target.chars().filter(|c| !c.is_control()).collect();
    let mut lines = vec![bold(cut(&format!("tidegate saturate {target}"), columns), colour)];
    lines.push(cut(&format!("{} steps of at most {}", view.steps, view.max_steps), columns));
    lines.push(String::new());
    if !view.levels.is_empty() || view.running.is_some() {
        lines.push(cut(&heading(view.mode, columns), columns));
    }
    let best = view.levels.iter().filter_map(|l| Some(l.throughput()?.mean)).fold(1.0, f64::max);
    for level in view.levels.iter().skip(view.levels.len().saturating_sub(shown)) {
        lines.push(cut(&row(level, best, columns), columns));
    }
    lines
}

/// The finished run's ladder with all its levels, to be left on the terminal.
#[must_use]
pub fn table(view: &View<'_>, columns: usize, colour: bool) -> Vec<String> {
    let whole = View { running: None, ..*view };
    ladder(&whole, columns.max(NARROWEST), usize::MAX, colour)
}

fn unit(mode: Mode) -> &'static str {
    match mode {
        Mode::Closed { .. } => "connections",
        Mode::Open { .. } => "requests/s offered",
    }
}

/// Narrow terminals have no room for bars.
fn is_narrow(columns: usize) -> bool {
    columns < 60
}

fn heading(mode: Mode, columns: usize) -> String {
    let load = match mode {
        Mode::Closed { .. } => "conns",
        Mode::Open { .. } => "offered/s",
    };
    columns_of(load, "good/s", "p50", "p99", "errors", columns)
}

/// The columns of a level and of the running step; a narrow terminal's are set closer.
fn columns_of(load: &str, good: &str, p50: &str, p99: &str, errors: &str, columns: usize) -> String {
    if is_narrow(columns) {
        format!("{load:>9} {good:>9} {p99:>8} {errors:>7}")
    } else {
        format!("{load:>9} {good:>10} {p50:>8} {p99:>8} {errors:>7}")
    }
}

fn row(level: &Level, best: f64, columns: usize) -> String {
    let done = level.throughput().map(|t| t.mean);
    let shown = |metric| Some(level.figure(metric)).filter(|us| us.is_finite()).map_or("-".to_owned(), time);
    let errors = level.error_ratio();
    let text = columns_of(
        &count(level.load),
        &done.map_or("refused".to_owned(), count),
        &shown(Metric::P50),
        &shown(Metric::P99),
        &if errors > 0.0 { percent(errors) } else { String::new() },
        columns,
    );
    if is_narrow(columns) {
        return text;
    }
    let room = columns.saturating_sub(text.chars().count() + 1).min(WIDEST_BAR);
    format!("{text} {}", bar(done.unwrap_or(0.0) / best, room))
}

fn running(r: &Running, columns: usize) -> Vec<String> {
    let share = if r.planned_seconds > 0.0 { r.elapsed_seconds / r.planned_seconds } else { 0.0 };
    let now = format!("{}/s, p50 {}, p99 {}", count(r.throughput), time(r.p50_us), time(r.p99_us));
    let rest = format!("{} in flight, {} denied, {} errors", r.in_flight, r.denied, r.errors);
    let load = if r.load > 0.0 { count(r.load) } else { String::new() };
    let done = format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0));
    let room = columns.saturating_sub(22).min(WIDEST_BAR);
    let of = format!("{:.0}/{:.0} s", r.elapsed_seconds.clamp(0.0, 1e6), r.planned_seconds.clamp(0.0, 1e6));
    let indent = if is_narrow(columns) { "" } else { "          " };
    vec![
        format!("{load:>9} {} {done} {of}", bar(share, room)),
        format!("{indent}{now}"),
        format!("{indent}{rest}"),
    ]
}

/// A bar of `room` columns of which `share` is full.
fn bar(share: f64, room: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * room as f64).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(room - full))
}

fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect::<String>().trim_end().to_owned()
}

fn bold(line: String, colour: bool) -> String {
    if colour { format!("\u{1b}[1m{line}\u{1b}[0m") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::{Settings, discover};
    use crate::simulated::Service;
    use proptest::prelude::*;

    fn levels() -> Vec<Level> {
        let mut service = Service::new(8, 10_000.0);
        service.ports = 40;
        let settings = Settings { ceiling: 64.0, max_steps: 12, ..Settings::default() };
        discover(&mut service, settings).unwrap().levels().to_vec()
    }

    fn view(levels: &[Level], running: Option<Running>) -> View<'_> {
        View {
            target: "http://127.0.0.1:4000/\u{1b}[2J",
            mode: Mode::Closed { think_us: 0 },
            levels,
            steps: levels.len(),
            max_steps: 80,
            running,
        }
    }

    fn now() -> Running {
        Running {
            load: 32.0,
            elapsed_seconds: 3.0,
            planned_seconds: 6.0,
            throughput: 798.0,
            p50_us: 40_100.0,
            p99_us: 41_900.0,
            in_flight: 32,
            denied: 0,
            errors: 2,
        }
    }

    #[test]
    fn both_forms() {
        let levels = levels();
        let mut shown = screen(&view(&levels, Some(now())), 80, 24, false);
        shown.extend(screen(&view(&levels, Some(now())), 40, 13, false));
        shown.push(plain(&view(&levels, Some(now()))));
        shown.push(plain(&view(&levels, None)));
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn the_table_that_stays_has_every_level_and_no_running_step() {
        let levels = levels();
        let many: Vec<Level> = levels.iter().cycle().take(30).cloned().collect();
        let lines = table(&view(&many, Some(now())), 80, false);
        assert_eq!(lines.len(), 4 + 30, "{lines:#?}");
        assert!(!lines.join("\n").contains("in flight"), "{lines:#?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn no_line_is_wider_than_the_terminal_and_none_moves_its_cursor(
            columns in 0_usize..200, rows in 10_usize..60, load in 0.0_f64..1e9, share in -1.0_f64..3.0, errors: u64,
        ) {
            let levels = levels();
            let running = Running { load, elapsed_seconds: share * 6.0, errors, ..now() };
            let lines = screen(&view(&levels, Some(running)), columns, rows, false);
            prop_assert!(lines.len() < rows, "{} lines in {rows} rows", lines.len());
            for line in lines {
                prop_assert!(line.chars().count() <= columns.max(NARROWEST), "{}", line);
                let still = !line.contains('\u{1b}');
                prop_assert!(still);
            }
        }
    }
}
