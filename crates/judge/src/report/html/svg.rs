//! A small chart: two axes, marks in data coordinates, SVG out.
//!
//! Colours are classes, so that the style sheet decides them for light and dark. The drawing is
//! 360 x 240 units with 11-unit text, which is readable from 290 px of width on. Nothing is drawn outside
//! of it: the space on the left is as wide as the longest label there, and a label at the right edge ends
//! with it.

use std::fmt::Write;

use super::escape;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const RIGHT: f64 = 10.0;
/// Widest character of a label, at the larger size that narrow screens get.
const CHARACTER: f64 = 7.6;
/// Between a label and the axis.
const GAP: f64 = 4.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;
/// Most ticks of an axis.
const TICKS: usize = 5;

/// Writes a tick's value.
pub(super) type TickFormat = fn(f64) -> String;

/// One axis: its range and whether it is logarithmic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// A linear axis from 0, or from the smallest value when that is below 0.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        Self { low: low.min(0.0), high: if high > low.min(0.0) { high * 1.05 } else { 1.0 }, log: false }
    }

    /// A logarithmic axis over positive values.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values.filter(|v| *v > 0.0));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        // A single value gets a decade around it.
        if high / low < 1.5 {
            Self { low: low / 3.0, high: high * 3.0, log: true }
        } else {
            Self { low, high, log: true }
        }
    }

    /// Position of a value, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let all: Vec<f64> = if self.log { self.log_ticks() } else { self.linear_ticks() };
        let inside: Vec<f64> =
            all.into_iter().filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001).collect();
        let every = inside.len().div_ceil(TICKS).max(1);
        inside.into_iter().step_by(every).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last).flat_map(|d| steps.iter().map(move |s| s * 10_f64.powi(d))).collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let raw = (self.high - self.low) / TICKS as f64;
        let digit = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * digit).find(|s| *s >= raw).unwrap_or(raw);
        (0..=TICKS * 2).map(|i| (self.low / step).ceil() * step + i as f64 * step).collect()
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
}

/// A chart being drawn.
pub(super) struct Chart {
    x: Axis,
    y: Axis,
    formats: (TickFormat, TickFormat),
    /// Space for the labels of the y axis.
    left: f64,
    marks: String,
    legend: Vec<(&'static str, String)>,
}

impl Chart {
    /// An empty chart; the formats write the ticks of x and y.
    pub(super) fn new(x: Axis, y: Axis, x_format: TickFormat, y_format: TickFormat) -> Self {
        let widest = y.ticks().into_iter().map(|tick| width(&y_format(tick))).fold(0.0, f64::max);
        let formats = (x_format, y_format);
        Self { x, y, formats, left: widest + 2.0 * GAP, marks: String::new(), legend: Vec::new() }
    }

    fn px(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (WIDTH - self.left - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM)
    }

    /// A full-height band between two values of x.
    pub(super) fn band(&mut self, class: &'static str, from: f64, to: f64) {
        let (left, right) = (self.px(from), self.px(to));
        self.mark(format_args!(
            r#"<rect class="{class}" x="{left:.1}" y="{TOP}" width="{:.1}" height="{:.1}"/>"#,
            (right - left).max(1.0),
            HEIGHT - TOP - BOTTOM,
        ));
    }

    /// A line through points.
    pub(super) fn line(&mut self, class: &'static str, label: &str, points: &[(f64, f64)]) {
        let path: Vec<String> = points
            .iter()
            .filter(|p| p.0.is_finite() && p.1.is_finite())
            .map(|&(x, y)| format!("{:.1},{:.1}", self.px(x), self.py(y)))
            .collect();
        if path.len() > 1 {
            self.mark(format_args!(r#"<polyline class="line {class}" points="{}"/>"#, path.join(" ")));
        }
        self.name(class, label);
    }

    /// Dots, each with the text that is shown when it is pointed at.
    pub(super) fn dots(&mut self, class: &'static str, label: &str, points: &[(f64, f64, String)]) {
        for (x, y, title) in points.iter().filter(|p| p.1.is_finite()) {
            let (cx, cy) = (self.px(*x), self.py(*y));
            let title = escape(title);
            self.mark(format_args!(
                r#"<circle class="dot {class}" cx="{cx:.1}" cy="{cy:.1}" r="3"><title>{title}</title></circle>"#
            ));
        }
        self.name(class, label);
    }

    /// A vertical interval at x.
    pub(super) fn whisker(&mut self, class: &'static str, x: f64, low: f64, high: f64) {
        let (x, top, bottom) = (self.px(x), self.py(high), self.py(low));
        self.mark(format_args!(
            r#"<line class="whisker {class}" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#
        ));
    }

    /// A bar from the bottom, between two values of x.
    pub(super) fn bar(&mut self, class: &'static str, from: f64, to: f64, y: f64, title: &str) {
        let (left, right, top) = (self.px(from), self.px(to), self.py(y));
        let (width, height) = ((right - left - 0.4).max(0.6), (HEIGHT - BOTTOM - top).max(0.0));
        let title = escape(title);
        self.mark(format_args!(
            r#"<rect class="bar {class}" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"><title>{title}</title></rect>"#
        ));
    }

    /// A marked value of x.
    pub(super) fn marker(&mut self, class: &'static str, label: &str, x: f64) {
        let at = self.px(x);
        let bottom = HEIGHT - BOTTOM;
        self.mark(format_args!(
            r#"<line class="marker {class}" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#
        ));
        self.name(class, label);
    }

    fn mark(&mut self, what: std::fmt::Arguments<'_>) {
        // Invariant: a String takes any text.
        self.marks.write_fmt(what).expect("writing to a String cannot fail");
    }

    fn name(&mut self, class: &'static str, label: &str) {
        if !label.is_empty() && !self.legend.iter().any(|l| l.1 == label) {
            self.legend.push((class, label.to_owned()));
        }
    }

    /// Something that is named below the chart without a mark of its own.
    pub(super) fn note(&mut self, class: &'static str, label: String) {
        self.legend.push((class, label));
    }

    /// The finished figure, with the names of its axes.
    pub(super) fn figure(self, title: &str, x_label: &str, y_label: &str) -> String {
        let mut ticks = String::new();
        for x in self.x.ticks() {
            let (at, label) = (self.px(x), self.formats.0(x));
            let (from, anchor) =
                if at + width(&label) / 2.0 > WIDTH { (WIDTH, "end") } else { (at, "middle") };
            ticks += &format!(
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text class="tick" x="{from:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 14.0,
                escape(&label),
            );
        }
        for y in self.y.ticks() {
            let at = self.py(y);
            ticks += &format!(
                r#"<line class="grid" x1="{:.1}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                self.left,
                WIDTH - RIGHT,
                self.left - GAP,
                at + 4.0,
                escape(&self.formats.1(y)),
            );
        }
        let legend: String = self
            .legend
            .iter()
            .map(|(class, label)| format!(r#"<li><i class="{class}"></i>{}</li>"#, escape(label)))
            .collect();
        let (title, x_label, y_label) = (escape(title), escape(x_label), escape(y_label));
        format!(
            r#"<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{ticks}{marks}<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{x_label}</text></svg><ul class="legend"><li class="unit">up: {y_label}</li>{legend}</ul></figure>"#,
            self.left + (WIDTH - self.left - RIGHT) / 2.0,
            HEIGHT - 5.0,
            marks = self.marks,
        )
    }
}

/// Width of a label, rather too much than too little.
fn width(label: &str) -> f64 {
    label.chars().count() as f64 * CHARACTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn marks_stay_inside_whatever_the_values(
            xs in prop::collection::vec((-12.0_f64..15.0, -1.0_f64..1.0), 1..20), log: bool,
        ) {
            let xs: Vec<f64> = xs.into_iter().map(|(power, sign)| 10_f64.powf(power) * sign).collect();
            let axis = if log { Axis::log(xs.iter().copied()) } else { Axis::linear(xs.iter().copied()) };
            for &x in &xs {
                prop_assert!((0.0..=1.0).contains(&axis.share(x)), "{} on {:?}", x, axis);
            }
            prop_assert!(axis.ticks().len() <= TICKS + 1);
        }
    }

    #[test]
    fn labels_are_escaped() {
        let axes = (Axis::log([1.0, 10.0].into_iter()), Axis::linear([0.0, 5.0].into_iter()));
        let mut chart = Chart::new(axes.0, axes.1, |v| v.to_string(), |v| v.to_string());
        chart.dots("a", "<b>", &[(2.0, 3.0, "\"><script>".to_owned())]);
        let svg = chart.figure("<t>", "<x>", "<y>");
        assert!(!svg.contains("<script>") && !svg.contains("<b>") && svg.contains("&lt;t&gt;"));
    }
}
