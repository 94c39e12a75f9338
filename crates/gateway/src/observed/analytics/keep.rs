//! Writing what was counted to the store, off the way of requests.
//!
//! Where a minute or more is between two writes, which is the default, a minute is written when it is over: in one transaction of the
//! store for each minute that has requests, and in none where there are none. A process that is killed then loses what came since the
//! last write, two minutes at most beside one write that was under way. Where there is less between two writes, the minute under way is
//! written in parts, so that other nodes know of it and less is lost, with a transaction for each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_algorithms::time::Wall;
use tidegate_control::{Added, Batch, Control, Counted, Error, Span};
use tidegate_net::clock::wall;
use tokio::time::sleep;

use super::{Analytics, Unstored, second};

/// From this pause between two writes on, a minute is written as a whole.
const WHOLE_MINUTES: Duration = Duration::from_secs(60);

impl Analytics {
    /// Writes what was counted, again and again, until it is aborted.
    pub async fn keep(self: Arc<Self>, control: Control) {
        let mut is_away = false;
        loop {
            sleep(self.pause).await;
            let grows = (self.pause >= WHOLE_MINUTES).then(|| Span::Minute.begin(second(wall())));
            match self.store_all_but(grows, &control).await {
                Ok(()) if is_away => {
                    is_away = false;
                    tracing::info!("counts of requests are stored again");
                }
                Err(error) if !is_away => {
                    is_away = true;
                    tracing::warn!(%error, "counts of requests cannot be stored, and wait: GET /v1/analytics lacks those of other nodes");
                }
                _ => {}
            }
        }
    }

    /// Writes everything that was counted so far, the oldest first.
    ///
    /// # Errors
    /// Those of the store: the batch that it did not take waits, and all after it.
    pub async fn store(self: &Arc<Self>, control: &Control) -> Result<(), Error> {
        self.store_all_but(None, control).await
    }

    /// The same without the minute that `grows`.
    async fn store_all_but(self: &Arc<Self>, grows: Option<u64>, control: &Control) -> Result<(), Error> {
        let last = self.collected().last;
        while let Some(batch) = self.seal(last, grows) {
            let this = Arc::clone(self);
            control.run(move |control| this.write(control, &batch, wall())).await?;
        }
        Ok(())
    }

    /// The oldest batch, if it is not younger than `last`, nor of the minute that `grows`. Nothing is added to it from now on.
    pub(super) fn seal(&self, last: u64, grows: Option<u64>) -> Option<Arc<Unstored>> {
        let mut counting = self.collected();
        let is_due = |batch: &Unstored| batch.is_sealed || Some(batch.minute) != grows;
        let oldest = counting.batches.front_mut().filter(|batch| batch.number <= last && is_due(batch))?;
        if !oldest.is_sealed {
            Arc::make_mut(oldest).is_sealed = true;
        }
        Some(Arc::clone(oldest))
    }

    /// Writes a sealed batch, and forgets it when it is stored.
    pub(super) fn write(&self, control: &Control, batch: &Unstored, now: Wall) -> Result<(), Error> {
        let Added { without_room, texts } = control.add_counts(&self.batch(batch), second(now))?;
        self.others.fetch_add(without_room, Relaxed);
        let mut counting = self.counting();
        // It is not the first if another writer, at the end of the process, was faster.
        counting.batches.retain(|one| one.number != batch.number);
        if texts > 0 {
            counting.stored = (batch.minute, texts);
        }
        Ok(())
    }

    fn batch(&self, unstored: &Unstored) -> Batch {
        let Unstored { number, minute, series, .. } = unstored;
        let rows = series.iter().map(|(labels, sums)| Counted {
            labels: labels.names().written(),
            otherwise: labels.of_others().names().written(),
            sums: sums.clone(),
        });
        Batch { writer: self.writer, number: *number, minute: *minute, rows: rows.collect() }
    }
}
