//! The metrics page: every collector, in one bounded text, in the form that the scraper asks for
//! ([`Exposition`]).
//!
//! The page is bounded twice. Labels take their values from lists that the configuration bounds,
//! so a client cannot add a series. And the page itself ends at [`MAX_SCRAPE_BYTES`], on a whole
//! line and properly closed, whatever a collector does; a gauge on the next page says so
//! (fault 53).

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use crate::Families;
use crate::exposition::{Exposition, write_classic};

/// The most that one scrape returns.
pub const MAX_SCRAPE_BYTES: usize = 1_000_000;

const END: &str = "# EOF\n";

/// Something whose numbers are on the metrics page: a function from its state to families.
///
/// One collector writes each family whole, because a family may be declared only once.
pub trait Family: Send + Sync + 'static {
    /// Writes the families.
    ///
    /// # Errors
    /// When the page is full.
    fn write(&self, families: &mut Families<'_>) -> fmt::Result;
}

/// The metrics page.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    truncated: Arc<Truncated>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A page without collectors.
    #[must_use]
    pub fn new() -> Self {
        let truncated = Arc::new(Truncated::default());
        let mut metrics = Self { registry: Registry::default(), truncated: Arc::clone(&truncated) };
        metrics.register(truncated);
        metrics
    }

    /// Adds what `family` writes to the page.
    pub fn register(&mut self, family: impl Family) {
        self.registry.register_collector(Box::new(Collected(family)));
    }

    /// The page as it is now, in OpenMetrics.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.page(Exposition::OpenMetrics)
    }

    /// The page as it is now.
    pub(crate) fn page(&self, exposition: Exposition) -> String {
        let mut page = Bounded { text: String::new() };
        let mut whole = page.cut_unless(|page| encode_registry(page, &self.registry));
        if exposition == Exposition::Classic {
            let mut classic = Bounded { text: String::new() };
            // The names of its counters are longer, so it may be the one that is full.
            whole &= classic.cut_unless(|classic| write_classic(&page.text, classic));
            page = classic;
        } else {
            page.text.push_str(END);
        }
        if !whole {
            self.truncated.scrapes.fetch_add(1, Relaxed);
        }
        page.text
    }
}

/// How often the page was too long.
#[derive(Debug, Default)]
struct Truncated {
    scrapes: AtomicU64,
}

impl Family for Arc<Truncated> {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Scrapes whose page was cut at its largest size";
        families.counter("tidegate_metrics_truncated_scrapes", help, self.scrapes.load(Relaxed))
    }
}

/// A text that refuses to grow beyond what a scrape may return.
struct Bounded {
    text: String,
}

impl Bounded {
    /// Writes; whether all of it fitted. What did not is cut after the last whole line.
    fn cut_unless(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> bool {
        if write(self).is_ok() {
            return true;
        }
        let lines = self.text.rfind('\n').map_or(0, |last| last + 1);
        self.text.truncate(lines);
        false
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_SCRAPE_BYTES - END.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

struct Collected<F>(F);

impl<F> fmt::Debug for Collected<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<F>())
    }
}

impl<F: Family> Collector for Collected<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Families::new(encoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Endless;

    impl Family for Endless {
        fn write(&self, families: &mut Families<'_>) -> fmt::Result {
            families.counters("endless", "Never stops", |series| {
                (0_u64..).try_for_each(|n| series(&[("n", &n.to_string())], n))
            })
        }
    }

    #[test]
    fn fault_53_a_collector_that_never_stops_is_cut_on_a_whole_line() {
        let mut metrics = Metrics::new();
        metrics.register(Endless);
        let page = metrics.page(Exposition::OpenMetrics);
        assert!(page.len() <= MAX_SCRAPE_BYTES);
        assert!(page.ends_with(END));
        let whole = |line: &str| line.starts_with("endless_total{n=\"") && line.contains("\"} ");
        assert!(whole(page.lines().rev().nth(1).unwrap()), "{:?}", page.lines().last());
        let classic = metrics.page(Exposition::Classic);
        assert!(classic.len() <= MAX_SCRAPE_BYTES && whole(classic.lines().last().unwrap()));
        assert!(classic.ends_with('\n') && !classic.contains("# EOF"));
        assert!(classic.contains("tidegate_metrics_truncated_scrapes_total 1\n"), "one scrape each");
    }

    #[test]
    fn label_values_cannot_break_out_of_their_quotes() {
        struct Hostile;
        impl Family for Hostile {
            fn write(&self, families: &mut Families<'_>) -> fmt::Result {
                families.gauges("hostile", "A name with everything in it", |series| {
                    series(&[("name", "a\"} 1\nforged_total 9\\")], 1)
                })
            }
        }
        let mut metrics = Metrics::new();
        metrics.register(Hostile);
        let page = metrics.page(Exposition::Classic);
        assert!(page.contains(r#"hostile{name="a\"} 1\nforged_total 9\\"} 1"#), "{page}");
        assert!(!page.lines().any(|line| line.starts_with("forged_total")));
    }
}
