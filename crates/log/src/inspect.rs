//! Looks at a partition's folder and says what is there and what is wrong, without changing anything.
//!
//! Opening a log mends what this finds (`recovery.rs`); `verify` only tells it. A segment whose index fits
//! its length is believed, unless everything is to be read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::{memchr, memchr_iter};
use zstd::zstd_safe::find_frame_compressed_size;

use crate::files::{Entry, Files, Readable, UNFINISHED, read_full, read_small};
use crate::finding::Finding;
use crate::index::{Block, Index, Indexer, MAX_BLOCK_BYTES, MAX_INDEX_BYTES, TimeRange};
use crate::segment::{INDEX, PACKED, PLAIN, offset_in};
use crate::settings::{Describe, Fact, MAX_LINE_BYTES, NameDigest};

/// A segment as it was found.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) path: PathBuf,
    pub(crate) first: u64,
    pub(crate) packed: bool,
    /// The file's length, and how much of it is whole lines.
    pub(crate) bytes: u64,
    pub(crate) whole_bytes: u64,
    pub(crate) lines: u64,
    pub(crate) times: TimeRange,
    pub(crate) modified_ms: i64,
    pub(crate) index_bytes: u64,
    /// The index that has to be written; `None` if the file beside it is that. Only these are kept, because
    /// the indexes of a large log are large.
    pub(crate) index: Option<Index>,
}

/// A partition's folder as it was found.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    /// In the order of their offsets.
    pub(crate) segments: Vec<Inspected>,
    /// Files that nothing needs.
    pub(crate) useless: Vec<PathBuf>,
    /// Segments that cannot be read, and an offset that is beyond their lines.
    pub(crate) unreadable: Vec<(PathBuf, u64)>,
    /// An offset beyond every line that was ever indexed.
    pub(crate) beyond: u64,
    /// Indexes without segments, before the first segment.
    orphans: Vec<PathBuf>,
    pub(crate) findings: Vec<Finding>,
}

/// How to inspect.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) describe: &'a dyn Describe,
    /// Reads segments whose index fits, too.
    pub(crate) everything: bool,
}

/// The files that have the lines from one offset on.
#[derive(Default)]
struct Forms {
    plain: Option<Entry>,
    packed: Option<Entry>,
    index: Option<Entry>,
}

/// # Errors
/// When the folder, or a file in it, may not be read by this process.
pub(crate) fn inspect(look: Look<'_>, folder: &Path) -> io::Result<Inspection> {
    let mut inspection = Inspection::default();
    let mut by_offset: BTreeMap<u64, Forms> = BTreeMap::new();
    for entry in look.files.list(folder)? {
        let offset = |ending| offset_in(&entry.name, ending).filter(|first| *first <= LAST_FIRST_OFFSET);
        if let (Some(first), false) = (offset(PLAIN), entry.folder) {
            by_offset.entry(first).or_default().plain = Some(entry);
        } else if let (Some(first), false) = (offset(PACKED), entry.folder) {
            by_offset.entry(first).or_default().packed = Some(entry);
        } else if let (Some(first), false) = (offset(INDEX), entry.folder) {
            by_offset.entry(first).or_default().index = Some(entry);
        } else if entry.name.ends_with(UNFINISHED) && !entry.folder {
            inspection.useless.push(folder.join(&entry.name));
        } else {
            inspection.findings.push(Finding::Foreign { file: folder.join(&entry.name) });
        }
    }
    for (first, forms) in by_offset {
        inspection.one(look, folder, first, forms)?;
    }
    let lost = std::mem::take(&mut inspection.orphans);
    inspection.findings.extend(lost.into_iter().map(|file| Finding::OnlyIndex { file }));
    Ok(inspection)
}

/// A name with a higher offset is not ours: adding lines to it might overflow.
pub(crate) const LAST_FIRST_OFFSET: u64 = 1 << 62;

impl Inspection {
    fn one(&mut self, look: Look<'_>, folder: &Path, first: u64, forms: Forms) -> io::Result<()> {
        let index_path = forms.index.map(|entry| folder.join(entry.name));
        let index = index_path
            .as_ref()
            .and_then(|path| Index::decode(&read_small(look.files, path, MAX_INDEX_BYTES).ok()?));
        self.beyond = self.beyond.max(index.as_ref().map_or(0, |index| first.saturating_add(index.lines())));
        let mut found = Vec::new();
        for (entry, packed) in [(forms.plain, false), (forms.packed, true)] {
            let Some(entry) = entry else { continue };
            let path = folder.join(&entry.name);
            let bytes = entry.bytes;
            match segment(look, path.clone(), first, packed, &entry, index.as_ref()) {
                Ok(segment) => found.push(segment),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Err(error) => {
                    self.findings.push(Finding::Unreadable { file: path.clone(), error: error.to_string() });
                    self.unreadable.push((path, first.saturating_add(bytes)));
                }
            }
        }
        if found.len() == 2 {
            self.findings.push(Finding::TwoForms { file: found[0].path.clone() });
        }
        // The one with more lines; of equals, the one that its index fits.
        found.sort_by_key(|segment| (segment.lines, segment.index.is_none()));
        let best = found.pop();
        self.useless.extend(found.into_iter().map(|segment| segment.path));
        let Some(best) = best else {
            // The index of a lost segment still says which offsets were given. One before all segments is
            // what retention leaves when it is interrupted.
            if self.segments.is_empty() {
                self.orphans.extend(index_path);
            } else {
                self.findings.extend(index_path.map(|file| Finding::OnlyIndex { file }));
            }
            return Ok(());
        };
        self.useless.append(&mut self.orphans);
        let indexed = index.as_ref().map_or(0, Index::lines);
        let is_shorter = best.lines < indexed;
        if is_shorter {
            let (file, lines) = (best.path.clone(), best.lines);
            self.findings.push(Finding::Shorter { file, lines, indexed });
        }
        if best.bytes == 0 {
            self.useless.push(best.path);
            self.useless.extend(index_path);
            return Ok(());
        }
        if best.index.is_some() && index_path.is_some() && !is_shorter {
            self.findings.push(Finding::StaleIndex { file: best.path.clone(), lines: best.lines });
        }
        if best.whole_bytes < best.bytes {
            self.findings.push(torn(look.files, &best)?);
        }
        self.order(&best);
        self.segments.push(best);
        Ok(())
    }

    /// Reports what is between a segment and those before it.
    fn order(&mut self, segment: &Inspected) {
        let Some(end) = self.segments.last().map(|last| last.first + last.lines) else { return };
        if segment.first > end {
            self.findings.push(Finding::Gap { file: segment.path.clone(), from: end, to: segment.first });
        } else if segment.first < end {
            let lines = end - segment.first;
            self.findings.push(Finding::Overlap { file: segment.path.clone(), lines });
        }
    }
}

fn torn(files: &dyn Files, segment: &Inspected) -> io::Result<Finding> {
    let from = segment.whole_bytes;
    let mut line_ends = 0;
    let file = files.open(&segment.path)?;
    let mut window = FileWindow::new(&*file, from);
    // What cannot be read has no lines to count.
    while let Ok(content) = window.fill(1) {
        if content.is_empty() {
            break;
        }
        line_ends += memchr_iter(b'\n', content).count() as u64;
        let read = content.len();
        window.consume(read);
    }
    let (file, bytes) = (segment.path.clone(), segment.bytes - from);
    Ok(Finding::Torn { file, from, bytes, line_ends, kept_in: None })
}

fn segment(
    look: Look<'_>,
    path: PathBuf,
    first: u64,
    packed: bool,
    entry: &Entry,
    index: Option<&Index>,
) -> io::Result<Inspected> {
    let fitting = index.filter(|index| index.packed == packed && index.bytes() == entry.bytes);
    let inspected = |index: &Index| Inspected {
        path: path.clone(),
        first,
        packed,
        bytes: entry.bytes,
        whole_bytes: index.bytes(),
        lines: index.lines(),
        times: index.times(),
        modified_ms: entry.modified_ms,
        index_bytes: index.encoded_len(),
        index: None,
    };
    if let (Some(index), false) = (fitting, look.everything) {
        return Ok(inspected(index));
    }
    let file = look.files.open(&path)?;
    let made = index_of_lines(look, &*file, packed)?;
    let found = inspected(&made);
    let indexed = fitting.is_some_and(|index| agrees(index, &made, &*file));
    Ok(Inspected { index: (!indexed).then_some(made), ..found })
}

/// The index of the whole lines at the beginning of a segment, made by reading them.
pub(crate) fn index_of_lines(look: Look<'_>, file: &dyn Readable, packed: bool) -> io::Result<Index> {
    let blocks = if packed { packed_blocks(look, file) } else { plain_blocks(look, file) }?;
    Ok(Index { packed, blocks })
}

/// Whether an index is that of the lines read, and its checksums those of the file.
fn agrees(index: &Index, made: &Index, file: &dyn Readable) -> bool {
    let mut content = Vec::new();
    let same = |block: &Block, made: &Block| Block { checksum: block.checksum, ..made.clone() } == *block;
    let mut of = |block: &Block| {
        content.resize(block.bytes as usize, 0);
        read_full(file, &mut content, block.start).is_ok_and(|read| block.is_of(&content[..read]))
    };
    index.blocks.len() == made.blocks.len()
        && index.blocks.iter().zip(&made.blocks).all(|(block, made)| same(block, made) && of(block))
}

/// The whole lines at the beginning of a plain segment.
fn plain_blocks(look: Look<'_>, file: &dyn Readable) -> io::Result<Vec<Arc<Block>>> {
    let mut window = FileWindow::new(file, 0);
    let mut indexer = Indexer::default();
    let mut blocks = Vec::new();
    loop {
        let content = window.fill(MAX_LINE_BYTES)?;
        let (used, intact) = index_lines(look.describe, content, &mut indexer, &mut blocks);
        if used == 0 || !intact {
            break;
        }
        window.consume(used);
    }
    blocks.extend(indexer.end().map(Arc::new));
    Ok(blocks)
}

/// Indexes whole lines up to the first that is cut off or no line of this log. Returns their bytes, and whether all
/// were good.
fn index_lines(
    describe: &dyn Describe,
    content: &[u8],
    indexer: &mut Indexer,
    blocks: &mut Vec<Arc<Block>>,
) -> (usize, bool) {
    let mut used = 0;
    while let Some(end) = memchr(b'\n', &content[used..]) {
        let Some(fact) = fact(describe, &content[used..used + end]) else { return (used, false) };
        blocks.extend(indexer.add(&fact).map(Arc::new));
        used += end + 1;
    }
    (used, true)
}

fn fact(describe: &dyn Describe, line: &[u8]) -> Option<Fact> {
    let bytes = u32::try_from(line.len() + 1).ok().filter(|bytes| *bytes as usize <= MAX_LINE_BYTES)?;
    let description = describe.describe(line)?;
    Some(Fact { name: NameDigest::of(&description.name), bytes, ms: description.ms })
}

/// The whole frames of whole lines at the beginning of a compressed segment.
fn packed_blocks(look: Look<'_>, file: &dyn Readable) -> io::Result<Vec<Arc<Block>>> {
    let mut window = FileWindow::new(file, 0);
    let mut blocks = Vec::new();
    let (mut start, mut first) = (0, 0);
    loop {
        let content = window.fill(zstd::zstd_safe::compress_bound(MAX_BLOCK_BYTES))?;
        let Some(block) = packed_block(look.describe, content) else { return Ok(blocks) };
        let block = Block { start, first, ..block };
        start += u64::from(block.bytes);
        first += u64::from(block.lines);
        window.consume(block.bytes as usize);
        blocks.push(Arc::new(block));
    }
}

/// The first frame of `content`, if it is whole and has whole lines only.
fn packed_block(describe: &dyn Describe, content: &[u8]) -> Option<Block> {
    let frame = content.get(..find_frame_compressed_size(content).ok()?)?;
    let plain = zstd::bulk::decompress(frame, MAX_BLOCK_BYTES).ok()?;
    let mut indexer = Indexer::unending();
    let (used, intact) = index_lines(describe, &plain, &mut indexer, &mut Vec::new());
    let block = indexer.end().filter(|_| intact && used == plain.len())?;
    Some(Block { bytes: u32::try_from(frame.len()).ok()?, ..block })
}

/// A file read from one place on, in large pieces.
struct FileWindow<'a> {
    file: &'a dyn Readable,
    content: Vec<u8>,
    consumed: usize,
    at: u64,
}

/// What is read at once.
const PIECE: usize = 4 << 20;

impl<'a> FileWindow<'a> {
    fn new(file: &'a dyn Readable, at: u64) -> Self {
        Self { file, content: Vec::new(), consumed: 0, at }
    }

    /// What was read and not consumed: at least `want` bytes, unless the file ends.
    fn fill(&mut self, want: usize) -> io::Result<&[u8]> {
        if self.content.len() - self.consumed < want {
            self.content.drain(..self.consumed);
            self.consumed = 0;
            let kept = self.content.len();
            // Most files have far less, and there may be thousands of them.
            let left = self.file.bytes()?.saturating_sub(self.at);
            let piece = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            self.content.resize(kept + piece, 0);
            let read = read_full(self.file, &mut self.content[kept..], self.at);
            self.content.truncate(kept + *read.as_ref().unwrap_or(&0));
            self.at += read? as u64;
        }
        Ok(&self.content[self.consumed..])
    }

    fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
    }
}
