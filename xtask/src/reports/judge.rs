//! Whether a row is better than its report: its figures beside those that the report states for each step.
//!
//! Compared are rate, mean, p99 and success, those of them that the report states. A row with one figure that is worse, or with
//! none that is better, is not better. An offered rate is compared with nothing.

use anyhow::bail;

use super::claims::{ClaimRow, SeedFigure};
use super::results::{RowResult, StepView, TesterView};
use crate::bench::{number, thousands};

/// Our figures of one step, or of all of them together.
pub(super) struct OurFigures {
    pub(super) load: u32,
    pub(super) replies: f64,
    pub(super) rate: f64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) denied: u64,
    pub(super) errors: u64,
    /// In per cent.
    pub(super) success: f64,
    pub(super) zone: String,
    pub(super) limit: String,
}

/// One row, judged.
pub(super) struct JudgedRow {
    pub(super) figures: Vec<OurFigures>,
    pub(super) view: Option<TesterView>,
    /// What is not better, each in words.
    pub(super) misses: Vec<String>,
    /// How many figures were compared.
    pub(super) compared: usize,
    /// How many of those are better.
    pub(super) better: usize,
    /// The least ratio of rates over its steps.
    pub(super) ratio: Option<f64>,
}

impl JudgedRow {
    /// In a word or two, for a table.
    pub(super) fn word(&self) -> &'static str {
        match (self.misses.is_empty(), self.compared, self.better) {
            (false, _, _) => "**not better**",
            (true, 0, _) => "nothing to compare",
            (true, _, 0) => "**not better**, not worse",
            (true, _, _) => "better",
        }
    }

    /// In a sentence, which begins with what is not better.
    pub(super) fn verdict(&self) -> String {
        let compared = self.compared;
        match (self.misses.is_empty(), compared, self.better) {
            (false, _, _) => format!("**Not better**: {}.", self.misses.join("; ")),
            (true, 0, _) => "The report states no figure that was served, so nothing is compared.".to_owned(),
            (true, _, 0) => {
                format!("**Not better**, and not worse: figures that are compared: {compared}, all equal.")
            }
            (true, _, better) => {
                let rate =
                    self.ratio.map(|ratio| format!(" At least {} times the report's rate.", number(ratio)));
                let rate = rate.unwrap_or_default();
                format!("Better: figures that are compared: {compared}, better {better}, worse 0.{rate}")
            }
        }
    }
}

/// Judges a row by its result.
///
/// # Errors
/// When the result is not of this row.
pub(super) fn judged(row: &ClaimRow, result: &RowResult) -> anyhow::Result<JudgedRow> {
    let view = result.view()?;
    let figures = match &view {
        Some(view) if row.whole => vec![together(row, view)],
        Some(view) => {
            view.steps.iter().map(|step| figures_of(row, view, std::slice::from_ref(step))).collect()
        }
        None => Vec::new(),
    };
    let mut judged = JudgedRow { figures, view, misses: Vec::new(), compared: 0, better: 0, ratio: None };
    if judged.figures.len() < row.seed.len() {
        bail!("{}: {} steps were measured of {}", row.name, judged.figures.len(), row.seed.len());
    }
    for (ours, seed) in judged.figures.iter().zip(&row.seed) {
        if !row.whole && ours.load != seed.load {
            bail!(
                "{}: a step has {} connections, and the report's figure is of {}",
                row.name,
                ours.load,
                seed.load
            );
        }
        let at = if row.seed.len() > 1 {
            format!(" at {} connections", thousands(f64::from(seed.load)))
        } else {
            String::new()
        };
        for (said, gain) in comparisons(seed, ours) {
            judged.compared += 1;
            judged.better += usize::from(gain > 0.0);
            if gain < 0.0 {
                judged.misses.push(format!("{said}{at}"));
            }
        }
        if let Some(rate) = seed.rate {
            let ratio = ours.rate / rate;
            judged.ratio = Some(judged.ratio.map_or(ratio, |least: f64| least.min(ratio)));
        }
    }
    for bound in &row.bound {
        judged.compared += 1;
        match result.figures.get(&bound.figure) {
            Some(figure) if *figure <= bound.at_most => judged.better += 1,
            Some(figure) => judged.misses.push(format!(
                "{} {}, at most {}",
                bound.figure,
                number(*figure),
                number(bound.at_most)
            )),
            None => judged.misses.push(format!("{} was not measured", bound.figure)),
        }
    }
    Ok(judged)
}

/// What is compared, in words, and by how much ours is better; below 0 it is worse.
fn comparisons(seed: &SeedFigure, ours: &OurFigures) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    if let Some(rate) = seed.rate {
        let said = format!("{} replies/s, the report {}", thousands(ours.rate), thousands(rate));
        all.push((said, ours.rate - rate));
    }
    if let Some(mean) = seed.mean_ms {
        all.push((
            format!("a mean of {} ms, the report {}", number(ours.mean_ms), number(mean)),
            mean - ours.mean_ms,
        ));
    }
    if let Some(p99) = seed.p99_ms {
        all.push((format!("p99 {} ms, the report {}", number(ours.p99_ms), number(p99)), p99 - ours.p99_ms));
    }
    if let Some(success) = seed.success {
        let said = format!("{} % good, the report {} %", percent(ours.success), percent(success));
        all.push((said, ours.success - success));
    }
    all
}

/// All steps as one: replies over all of their time; the worst p99.
fn together(row: &ClaimRow, view: &TesterView) -> OurFigures {
    figures_of(row, view, &view.steps)
}

fn figures_of(row: &ClaimRow, view: &TesterView, steps: &[StepView]) -> OurFigures {
    let sum = |value: &dyn Fn(&StepView) -> f64| steps.iter().map(value).sum::<f64>();
    let most = |value: &dyn Fn(&StepView) -> f64| steps.iter().map(value).fold(0.0, f64::max);
    let good = sum(&|step| float(step.good));
    let (denied, errors): (u64, u64) =
        (steps.iter().map(|step| step.denied).sum(), steps.iter().map(StepView::error_count).sum());
    let replies = good + if row.denials_count { float(denied) } else { 0.0 };
    let ended = good + float(denied) + float(errors);
    let seconds = sum(&|step| step.seconds + if row.opening { step.opening_seconds } else { 0.0 });
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let load = steps.iter().map(|step| step.plan.connections).max().unwrap_or(0);
    let level = view.levels.iter().find(|level| (level.load - f64::from(load)).abs() < 0.5);
    let mut limits: Vec<&str> = level.map(|level| level.cause.as_str()).into_iter().collect();
    for refusal in steps.iter().flat_map(|step| &step.refusals) {
        if !limits.contains(&refusal.reason.as_str()) {
            limits.push(&refusal.reason);
        }
    }
    OurFigures {
        load,
        replies,
        rate: share(replies, seconds),
        mean_ms: share(sum(&|step| step.response.mean_us * float(step.good)), good) / 1e3,
        p50_ms: most(&|step| step.response.p50_us) / 1e3,
        p99_ms: most(&|step| step.response.p99_us) / 1e3,
        denied,
        errors,
        success: share(replies, ended) * 100.0,
        zone: level.map_or("-", |level| level.zone.as_str()).to_owned(),
        limit: limits.join(", "),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run; 2^53 of them are not reached")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Two places; what failed once in a million is not shown as whole.
pub(super) fn percent(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "100.00" && value < 100.0 {
        return "under 100".to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_failure_is_not_rounded_away() {
        assert_eq!(
            [100.0, 99.9999, 64.08, 99.5, 0.0].map(percent),
            ["100", "under 100", "64.08", "99.5", "0"]
        );
    }

    fn row(seed: &str) -> ClaimRow {
        let text = format!(
            "name = 'a'\ntitle = 'A'\nsaid = ''\nreally = ''\nstand = {{ service = 'intake' }}\n\
             work = {{ kind = 'saturate', url = '{{at}}' }}\nseed = [{seed}]\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn result(good: u64, errors: u64) -> RowResult {
        let step = serde_json::json!({
            "plan": {"connections": 20}, "seconds": 10.0, "established": 20, "good": good, "denied": 0,
            "errors": {"reset": errors}, "response": {"mean_us": 1.0, "p50_us": 1, "p99_us": 1},
        });
        let report = serde_json::json!({
            "cause": {"name": "unknown", "summary": ""}, "levels": [], "steps": [step],
        });
        serde_json::from_value(serde_json::json!({
            "date": "", "commit": "", "machine": "", "kernel": "", "command": "", "report": report,
        }))
        .unwrap()
    }

    #[test]
    fn an_equal_row_is_not_called_better_and_an_offered_rate_is_compared_with_nothing() {
        let offered = row("{ load = 20, offered = 200, success = 100 }");
        let verdict = judged(&offered, &result(1_000, 0)).unwrap().verdict();
        assert!(verdict.starts_with("**Not better**, and not worse"), "{verdict}");
        let verdict = judged(&offered, &result(999, 1)).unwrap().verdict();
        assert_eq!(verdict, "**Not better**: 99.9 % good, the report 100 %.");
        let served = row("{ load = 20, rate = 50, success = 99 }");
        let verdict = judged(&served, &result(1_000, 0)).unwrap().verdict();
        assert!(
            verdict.starts_with("Better") && verdict.ends_with("At least 2 times the report's rate."),
            "{verdict}"
        );
    }

    #[test]
    fn figures_of_another_step_or_of_too_few_are_refused() {
        assert!(judged(&row("{ load = 50, rate = 1 }"), &result(1, 0)).is_err());
        assert!(judged(&row("{ load = 20, rate = 1 }, { load = 50, rate = 1 }"), &result(1, 0)).is_err());
    }
}
