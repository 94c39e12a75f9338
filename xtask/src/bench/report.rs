//! Figures as Markdown: one table per case, then what was expected and what came.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::case::{Case, Expect, Quantity, Subject};
use super::figure::Figure;

/// One case's section.
pub(crate) fn section(case: &Case, figures: &[Figure]) -> String {
    let mut text = format!("\n## {}\n\n{}\n\n", case.name, case.what.trim());
    text.push_str(&table(case, figures));
    text.push_str(&expectations(case, figures));
    text
}

/// The section of a case whose script prints its own table.
pub(crate) fn printed(case: &Case, text: &str) -> String {
    format!("\n## {}\n\n{}\n\n```text\n{}\n```\n", case.name, case.what.trim(), text.trim_end())
}

/// The section of a case that could not be run.
pub(crate) fn not_measured(case: &Case, error: &anyhow::Error) -> String {
    format!("\n## {}\n\n{}\n\n**Not measured**: {error:#}\n", case.name, case.what.trim())
}

fn table(case: &Case, figures: &[Figure]) -> String {
    let rows: BTreeSet<(u32, Quantity)> = figures.iter().map(|f| (f.connections, f.quantity)).collect();
    let levels = rows.iter().any(|(connections, _)| *connections > 0);
    let names: Vec<&str> = case.subjects.iter().map(|subject| subject.name()).collect();
    let mut text = format!(
        "| {}figure | {} |\n|{}---|{}\n",
        if levels { format!("{} | ", case.load.levels()) } else { String::new() },
        names.join(" | "),
        if levels { "---:|" } else { "" },
        "---:|".repeat(names.len())
    );
    for (connections, quantity) in rows {
        text.push('|');
        if levels {
            write!(text, " {} |", thousands(f64::from(connections))).expect("a String takes any text");
        }
        write!(text, " {} |", quantity.name()).expect("a String takes any text");
        for subject in &case.subjects {
            let found = find(figures, quantity, connections, *subject);
            let cell = found.map_or_else(|| "-".to_owned(), cell);
            write!(text, " {cell} |").expect("a String takes any text");
        }
        text.push('\n');
    }
    text
}

/// The median, and the range when there were repeats.
fn cell(figure: &Figure) -> String {
    let (low, high) = (figure.values[0], figure.values[figure.values.len() - 1]);
    if figure.values.len() == 1 {
        return number(figure.median());
    }
    format!("{} ({} to {})", number(figure.median()), number(low), number(high))
}

fn expectations(case: &Case, figures: &[Figure]) -> String {
    let mut text = "\n| Expected of tidegate | at | measured | |\n|---|---:|---:|---|\n".to_owned();
    for expect in &case.expect {
        let levels = figures.iter().filter(|f| f.quantity == expect.figure && f.subject == Subject::Tidegate);
        for ours in levels.filter(|figure| expect.concerns(figure.connections)) {
            let theirs = expect.to.and_then(|to| find(figures, expect.figure, ours.connections, to));
            let value = match (expect.to, theirs) {
                (None, _) => ours.median(),
                (Some(_), Some(theirs)) => ours.median() / theirs.median(),
                (Some(_), None) => continue,
            };
            let at =
                if ours.connections == 0 { String::new() } else { thousands(f64::from(ours.connections)) };
            let verdict = if expect.admits(value) { "as expected" } else { "**outside**" };
            writeln!(text, "| {} | {at} | {} | {verdict} |", wording(expect), number(value))
                .expect("a String takes any text");
        }
    }
    text
}

/// `replies/s at least 0.8 x nginx`.
fn wording(expect: &Expect) -> String {
    let unit = expect.to.map(|to| format!(" x {}'s", to.name())).unwrap_or_default();
    let least = expect.at_least.map(|least| format!(" at least {}{unit}", number(least)));
    let most = expect.at_most.map(|most| format!(" at most {}{unit}", number(most)));
    let both = least.is_some() && most.is_some();
    let join = if both { " and" } else { "" };
    format!("{}{}{join}{}", expect.figure.name(), least.unwrap_or_default(), most.unwrap_or_default())
}

fn find(figures: &[Figure], quantity: Quantity, connections: u32, subject: Subject) -> Option<&Figure> {
    figures.iter().find(|f| f.quantity == quantity && f.connections == connections && f.subject == subject)
}

/// Three significant digits below 100, whole numbers above.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 || value.fract() == 0.0 => {
            format!("{value:.1}").trim_end_matches(".0").to_owned()
        }
        _ => format!("{value:.2}"),
    }
}

/// A whole number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = r#"
what = "How fast."
subjects = ["tidegate", "nginx"]
load = { kind = "throughput", connections = [64], seconds = 1, repeats = 3, clients = 1 }
[[expect]]
figure = "throughput"
to = "nginx"
at_least = 0.8
[[expect]]
figure = "throughput"
to = "nginx"
at_least = 0.8
at_most = 0.85
"#;

    fn figure(subject: Subject, values: &[f64]) -> Figure {
        Figure { quantity: Quantity::Throughput, connections: 64, subject, values: values.to_vec() }
    }

    #[test]
    fn a_ratio_outside_its_range_is_marked() {
        let mut case: Case = toml::from_str(CASE).unwrap();
        case.name = "speed".to_owned();
        let figures =
            [figure(Subject::Tidegate, &[8e4, 9e4, 9.5e4]), figure(Subject::Nginx, &[9e4, 1e5, 1.1e5])];
        let text = section(&case, &figures);
        assert!(
            text.contains("| 64 | replies/s | 90,000 (80,000 to 95,000) | 100,000 (90,000 to 110,000) |"),
            "{text}"
        );
        assert!(text.contains("| replies/s at least 0.80 x nginx's | 64 | 0.90 | as expected |"), "{text}");
        assert!(
            text.contains("at least 0.80 x nginx's and at most 0.85 x nginx's | 64 | 0.90 | **outside** |"),
            "{text}"
        );
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.5, 12.34, 100.4, 1234567.0].map(number);
        assert_eq!(shown, ["0", "0.50", "12.3", "100", "1,234,567"]);
    }
}
