//! Opening what an earlier process left: what is damaged is set aside and reported, and the rest serves.
//!
//! Nothing that is found in the files stops a start. Bytes that are no whole lines are copied to
//! `quarantine/` before they are cut off, so that a person can still look at them. Offsets are never given
//! twice: where lines were lost there is a gap, which readers are told of.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arrivals::LineArrivals;
use crate::files::{Files, read_full, unfinished, write_all};
use crate::finding::Finding;
use crate::inspect::{Inspected, Inspection};
use crate::segment::{Segment, Shelf, file_name};
use crate::settings::Clock;

/// What was found when a log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Lines there, of all partitions.
    pub lines: u64,
    /// Segments there, of all partitions.
    pub segments: u64,
    /// Segments that were read in full, because no index fitted.
    pub segments_read: u64,
    /// Files put into quarantine.
    pub quarantined_files: u64,
    /// Bytes in these files.
    pub quarantined_bytes: u64,
    /// What a person should know.
    pub findings: Vec<Finding>,
}

/// Mends a partition.
pub(crate) struct Mending<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) folder: &'a Path,
    pub(crate) quarantine: &'a Path,
    pub(crate) number: u16,
    pub(crate) clock: Clock,
    pub(crate) recovery: &'a mut Recovery,
}

impl Mending<'_> {
    /// Sets aside what is damaged and makes the shelf; `committed` is the furthest offset that was read.
    pub(crate) fn mend(mut self, inspection: Inspection, committed: u64) -> Shelf {
        let Inspection { segments, useless, unreadable, beyond, findings, .. } = inspection;
        self.recovery.findings.extend(findings);
        let mut next = committed.max(beyond);
        for file in useless {
            if let Err(error) = self.files.remove(&file) {
                self.not_mended(file, &error);
            }
        }
        for (file, after) in unreadable {
            next = next.max(after);
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Err(error) = self.move_whole(&file, &name, 0) {
                self.not_mended(file, &error);
            }
        }
        let mut sealed: Vec<Segment> = Vec::new();
        for segment in segments {
            let segment = self.segment(segment);
            if let Some(last) = sealed.last_mut() {
                last.lines = last.lines.min(segment.first - last.first);
            }
            if segment.lines > 0 {
                sealed.push(segment);
            }
        }
        next = next.max(sealed.last().map_or(0, Segment::end));
        self.recovery.lines += sealed.iter().map(|segment| segment.lines).sum::<u64>();
        self.recovery.segments += sealed.len() as u64;
        let mut arrivals = LineArrivals::default();
        for segment in &sealed {
            arrivals.note(segment.first, segment.written, 0);
        }
        Shelf { sealed: sealed.into_iter().map(Arc::new).collect(), active: None, next, arrivals }
    }

    fn segment(&mut self, found: Inspected) -> Segment {
        self.recovery.segments_read += u64::from(found.index.is_some());
        let whole = found.whole_bytes;
        let mut suspect = false;
        if whole < found.bytes {
            let set_aside = self.set_aside(&found, whole);
            suspect = set_aside.is_err();
            self.note(&found.path, set_aside);
        }
        if found.index.is_some() && whole > 0 && !suspect {
            // What readers are about to see must not go away with the next power loss.
            if let Err(error) = self.write_again(&found.path, whole) {
                suspect = true;
                self.not_mended(found.path.clone(), &error);
            }
        }
        Segment {
            first: found.first,
            lines: found.lines,
            packed: found.packed,
            bytes: whole,
            index_bytes: found.index_bytes,
            times: found.times,
            written: self.written(found.modified_ms),
            index: found.index.map(Arc::new),
            suspect,
        }
    }

    /// When a file was last written to that says so by the civil clock. What is said to come is now.
    fn written(&self, modified_ms: i64) -> Instant {
        let (now, wall_ms) = ((self.clock.monotonic)(), (self.clock.wall_ms)());
        let age = u64::try_from(wall_ms.saturating_sub(modified_ms)).unwrap_or(0);
        now.checked_sub(Duration::from_millis(age)).unwrap_or(now)
    }

    fn note(&mut self, file: &Path, set_aside: io::Result<PathBuf>) {
        match set_aside {
            Ok(kept) => {
                let torn = self.recovery.findings.iter_mut().rev().find_map(|finding| match finding {
                    Finding::Torn { file: torn, kept_in, .. } if torn == file => Some(kept_in),
                    _ => None,
                });
                if let Some(kept_in) = torn {
                    *kept_in = Some(kept);
                }
            }
            Err(error) => self.not_mended(file.to_owned(), &error),
        }
    }

    fn not_mended(&mut self, file: PathBuf, error: &io::Error) {
        self.recovery.findings.push(Finding::NotMended { file, error: error.to_string() });
    }

    /// Moves what follows the whole lines of a segment to the quarantine.
    fn set_aside(&mut self, found: &Inspected, whole: u64) -> io::Result<PathBuf> {
        let ending = if found.packed { ".zst-tail" } else { ".tail" };
        let name = format!("{}-{whole}{ending}", file_name(found.first, ""));
        if whole == 0 {
            return self.move_whole(&found.path, &name, found.bytes);
        }
        let kept = self.place(&name)?;
        let cut_off = || {
            let bytes = self.copy(&found.path, whole..u64::MAX, &kept)?;
            self.files.sync_folder(self.quarantine)?;
            let mut file = self.files.reopen(&found.path)?;
            file.cut(whole)?;
            Ok((bytes, file))
        };
        // What was not cut off is where it was, and the next start tries again: a copy would be one more each time.
        let cut_off: io::Result<_> = cut_off();
        let (bytes, mut file) = cut_off.inspect_err(|_| drop(self.files.remove(&kept)))?;
        file.sync()?;
        self.count(bytes);
        Ok(kept)
    }

    /// Puts a synced copy of the first `whole` bytes in the place of a segment. To sync the file itself would not
    /// do: if a sync of it has failed in an earlier process, later ones succeed and its bytes are on no disk.
    fn write_again(&self, path: &Path, whole: u64) -> io::Result<()> {
        let unfinished = unfinished(path);
        if let Err(error) = self.copy(path, 0..whole, &unfinished) {
            // It is in the way of nothing, but takes room.
            drop(self.files.remove(&unfinished));
            return Err(error);
        }
        self.files.rename(&unfinished, path)?;
        self.files.sync_folder(self.folder)
    }

    /// Copies a range of a file, as far as there are bytes, to a new one, and syncs that; how many they were.
    fn copy(&self, from: &Path, range: Range<u64>, to: &Path) -> io::Result<u64> {
        let from = self.files.open(from)?;
        let mut to = self.files.create(to)?;
        let mut piece = vec![0; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            let read = read_full(&*from, &mut piece, at)?;
            let wanted = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(read);
            if wanted == 0 {
                break;
            }
            write_all(&mut *to, std::iter::once(&piece[..wanted]))?;
            at += wanted as u64;
        }
        to.sync()?;
        Ok(at - range.start)
    }

    fn move_whole(&mut self, file: &Path, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let kept = self.place(name)?;
        self.files.rename(file, &kept)?;
        self.files.sync_folder(self.quarantine)?;
        self.files.sync_folder(self.folder)?;
        self.count(bytes);
        Ok(kept)
    }

    fn count(&mut self, bytes: u64) {
        self.recovery.quarantined_files += 1;
        self.recovery.quarantined_bytes += bytes;
    }

    /// A name in the quarantine that nothing has yet.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        self.files.create_folder(self.quarantine)?;
        let taken = self.files.list(self.quarantine)?;
        let number = self.number;
        let names = (0..=taken.len()).map(|copy| match copy {
            0 => format!("{number}-{name}"),
            copy => format!("{number}-{name}.{copy}"),
        });
        let mut free = names.filter(|name| !taken.iter().any(|entry| entry.name == *name));
        // Invariant: one more name than there are files.
        Ok(self.quarantine.join(free.next().unwrap_or_default()))
    }
}

/// Keeps the quarantine within `bytes`: the oldest files go first.
pub(crate) fn bound_quarantine(files: &dyn Files, quarantine: &Path, bytes: u64) -> io::Result<()> {
    let mut entries = match files.list(quarantine) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    entries.retain(|entry| !entry.folder);
    entries.sort_by(|a, b| (b.modified_ms, &b.name).cmp(&(a.modified_ms, &a.name)));
    let mut total: u64 = 0;
    for entry in entries {
        total = total.saturating_add(entry.bytes);
        if total > bytes {
            tracing::warn!(file = entry.name, "removed from the quarantine, which is full");
            files.remove(&quarantine.join(&entry.name))?;
        }
    }
    Ok(())
}
