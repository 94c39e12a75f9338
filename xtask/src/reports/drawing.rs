//! A page's chart: replies per second against connections, the report's and ours, both axes logarithmic.
//!
//! One file for light and dark, by the reader's preference, as the pictures of `docs/images/` are. It is 1,120 wide, so that
//! its 14-unit text is read as it is in a window of 1,280.

use std::fmt::Write as _;

use crate::bench::thousands;

const WIDTH: f64 = 1_120.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;
const STYLE: &str = "  .ground{fill:#fbfcfd;stroke:#d5dbe1} .grid{stroke:#d5dbe1;fill:none} .axis{stroke:#8a97a3;fill:none}
  .ours{stroke:#1f6f9f;fill:none;stroke-width:2.5} .theirs{stroke:#b0473a;fill:none;stroke-width:2.5;stroke-dasharray:8 5}
  .our-dot{fill:#1f6f9f} .their-dot{fill:#b0473a}
  text{fill:#17212b;font:14px system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif} .small{font-size:13px;fill:#4a5a68} .title{font-size:16px;font-weight:600}
  @media (prefers-color-scheme: dark){ .ground{fill:#161b22;stroke:#30363d} .grid{stroke:#30363d} .axis{stroke:#6b7885}
  .ours{stroke:#58a6d6} .theirs{stroke:#e08a7d} .our-dot{fill:#58a6d6} .their-dot{fill:#e08a7d} text{fill:#e6edf3} .small{fill:#a9b6c2} }
";

/// A point: connections, and replies per second.
pub(crate) type RatePoint = (f64, f64);

/// An axis in powers of ten, from its place at the low end to that at the high end.
struct PowerScale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl PowerScale {
    fn at(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.low).ln() / (self.high / self.low).ln()
    }
}

/// A line of the chart.
struct DrawnCurve<'a> {
    line: &'static str,
    dot: &'static str,
    name: &'static str,
    points: &'a [RatePoint],
    /// Where the labels are, from the points.
    above: f64,
    /// Where its name is.
    row: f64,
}

/// The chart; none when there is no line to draw.
pub(crate) fn chart(title: &str, theirs: &[RatePoint], ours: &[RatePoint]) -> Option<String> {
    let theirs = usable(theirs);
    let ours = usable(ours);
    if ours.len() < 2 {
        return None;
    }
    let all = || theirs.iter().chain(&ours);
    let (left, right) = ends(all().map(|point| point.0));
    let (low, high) = ends(all().map(|point| point.1));
    let x = PowerScale { low: left * 0.8, high: right * 1.25, from: LEFT, to: WIDTH - RIGHT };
    let decade = |value: f64| 10_f64.powf(value);
    let (low, high) = (decade(low.log10().floor()), decade((high * 1.05).log10().ceil()));
    let y = PowerScale { low, high, from: HEIGHT - BOTTOM, to: TOP };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-labelledby=\"t d\">\n<title id=\"t\">{title}</title><desc id=\"d\">Replies per second against connections: the \
         report's, and Tidegate's.</desc>\n<style>\n{STYLE}</style>\n<rect class=\"ground\" x=\".5\" y=\".5\" width=\"{}\" \
         height=\"{}\" rx=\"8\"/>\n",
        WIDTH - 1.0,
        HEIGHT - 1.0
    );
    put_text(&mut svg, "title", 20.0, 28.0, "start", title);
    put_text(&mut svg, "small", 20.0, 50.0, "start", "replies per second; both axes in powers of ten");
    put_text(&mut svg, "small", WIDTH / 2.0, HEIGHT - 12.0, "middle", "connections");
    grid(&mut svg, &x, &y, all().map(|point| point.0).collect());
    let curves = [
        DrawnCurve {
            line: "theirs",
            dot: "their-dot",
            name: "the report",
            points: &theirs,
            above: 20.0,
            row: 50.0,
        },
        DrawnCurve { line: "ours", dot: "our-dot", name: "Tidegate", points: &ours, above: -10.0, row: 28.0 },
    ];
    for curve in &curves {
        curve.draw(&mut svg, &x, &y);
    }
    Some(svg + "</svg>\n")
}

/// Points that a logarithmic axis has a place for, in the order of connections.
fn usable(points: &[RatePoint]) -> Vec<RatePoint> {
    let mut points: Vec<RatePoint> = points
        .iter()
        .copied()
        .filter(|(load, rate)| *load > 0.0 && *rate > 0.0 && rate.is_finite())
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

fn grid(svg: &mut String, x: &PowerScale, y: &PowerScale, mut loads: Vec<f64>) {
    let right = WIDTH - RIGHT;
    let mut line = y.low;
    while line <= y.high * 1.001 {
        let at = y.at(line);
        writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>")
            .expect("a String takes any text");
        put_text(svg, "small", LEFT - 10.0, at + 5.0, "end", &thousands(line));
        line *= 10.0;
    }
    writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {}H{right}\"/>", HEIGHT - BOTTOM)
        .expect("a String takes any text");
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let mut free = f64::NEG_INFINITY;
    for load in loads {
        let at = x.at(load);
        // A label has about seventy units.
        if at >= free {
            put_text(svg, "small", at, HEIGHT - BOTTOM + 20.0, "middle", &thousands(load));
            free = at + 60.0;
        }
    }
}

impl DrawnCurve<'_> {
    fn draw(&self, svg: &mut String, x: &PowerScale, y: &PowerScale) {
        let (line, dot) = (self.line, self.dot);
        let begin = WIDTH - 230.0;
        let middle = self.row - 5.0;
        writeln!(svg, "<path class=\"{line}\" d=\"M{begin} {middle}h40\"/>")
            .expect("a String takes any text");
        put_text(svg, "small", begin + 50.0, self.row, "start", self.name);
        let places: Vec<String> =
            self.points.iter().map(|(load, rate)| format!("{:.1} {:.1}", x.at(*load), y.at(*rate))).collect();
        if places.len() > 1 {
            writeln!(svg, "<path class=\"{line}\" d=\"M{}\"/>", places.join("L"))
                .expect("a String takes any text");
        }
        let mut free = f64::NEG_INFINITY;
        for (load, rate) in self.points {
            let (cx, cy) = (x.at(*load), y.at(*rate));
            writeln!(svg, "<circle class=\"{dot}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\"/>")
                .expect("a String takes any text");
            if cx >= free {
                put_text(svg, "small", cx, cy + self.above, "middle", &thousands(*rate));
                free = cx + 64.0;
            }
        }
    }
}

fn put_text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
    writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
        .expect("a String takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_drawn_inside_the_picture() {
        let theirs = [(10.0, 2_673.8), (1_000.0, 4_031.9), (50_000.0, 4_867.5)];
        let ours = [(10.0, 60_000.0), (1_000.0, 90_000.0), (50_000.0, 70_000.0), (60_000.0, f64::NAN)];
        let svg = chart("a", &theirs, &ours).unwrap();
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"ours\"").count()), (6, 2));
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains(">2,674<"), "{svg}");
        for circle in svg.split("<circle").skip(1) {
            let place = |name: &str| -> f64 {
                circle
                    .split(&format!("{name}=\""))
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap()
            };
            assert!((LEFT..=WIDTH - RIGHT).contains(&place("cx")), "{circle}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&place("cy")), "{circle}");
        }
    }

    #[test]
    fn one_point_is_no_line() {
        assert_eq!(chart("a", &[(1.0, 2.0), (2.0, 3.0)], &[(1.0, 2.0)]), None);
    }
}
