//! Reading lines back, by offset and by name and time.
//!
//! A reader looks up on the shelf where lines are, and then reads files on its own: it holds no lock while
//! it reads, and the writer never waits for it. A file that goes away meanwhile, because it was compressed
//! or is past its retention, is looked up again.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use memchr::{memchr, memchr_iter, memmem, memrchr};
use zstd::bulk::Decompressor;

use crate::error::ReadError;
use crate::files::{Readable, read_full};
use crate::index::{Block, MAX_BLOCK_BYTES};
use crate::partition::Partition;
use crate::segment::{LinesPlace, PLAIN, file_name};
use crate::settings::{Description, NameDigest};
use crate::statistics::count;

/// Lines of one partition, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLines {
    /// The offset of the first line here, or of the next to come.
    pub first_offset: u64,
    /// Whole lines, each with its `\n`.
    pub lines: Bytes,
    /// How many.
    pub count: u64,
    /// Where to read on.
    pub next_offset: u64,
    /// Offsets asked for that are not there, because their files were lost or damaged.
    pub missing: Option<Range<u64>>,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The lines' name.
    pub name: &'a str,
    /// Times from here, in Unix milliseconds.
    pub start_ms: i64,
    /// Times before this.
    pub end_ms: i64,
    /// Bytes of lines to read at most.
    pub max_bytes: u64,
    /// When to stop.
    pub deadline: Instant,
}

/// How far a scan came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Everything was looked at; otherwise a bound was reached, or the callee wanted no more.
    pub complete: bool,
    /// Lines handed out.
    pub lines: u64,
    /// Bytes of lines read.
    pub bytes: u64,
    /// Blocks read and blocks that the index ruled out.
    pub blocks_read: u64,
    /// See `blocks_read`.
    pub blocks_skipped: u64,
    /// Blocks that could not be read.
    pub blocks_damaged: u64,
}

/// A file may be exchanged under a reader this often before it gives up.
const ATTEMPTS: usize = 4;

/// Some blocks of one segment.
struct BlockSource {
    first: u64,
    /// Offsets from here on are another segment's.
    end: u64,
    packed: bool,
    file: Box<dyn Readable>,
    blocks: Vec<Arc<Block>>,
}

impl BlockSource {
    fn open(partition: &Partition, place: &LinesPlace, from: u64) -> io::Result<Self> {
        match place {
            LinesPlace::Active(first, blocks) => {
                let path = partition.folder.join(file_name(*first, PLAIN));
                let end = blocks.last().map_or(*first, |last| first + last.first + u64::from(last.lines));
                let file = partition.files.open(&path)?;
                Ok(Self { first: *first, end, packed: false, file, blocks: blocks.clone() })
            }
            LinesPlace::Sealed(segment) => {
                let index = partition.index_of(segment)?;
                let blocks = index.blocks_from(from.saturating_sub(segment.first)).to_vec();
                let file = partition.files.open(&segment.path(&partition.folder))?;
                Ok(Self { first: segment.first, end: segment.end(), packed: segment.packed, file, blocks })
            }
        }
    }

    /// The lines of a block; `None` if it does not have the lines that the index says.
    fn load(&self, block: &Block, unpacker: &mut Decompressor<'_>) -> io::Result<Option<Vec<u8>>> {
        let mut content = vec![0; block.bytes as usize];
        let read = read_full(&*self.file, &mut content, block.start)?;
        if !block.is_of(&content[..read]) {
            return Ok(None);
        }
        if self.packed {
            match unpacker.decompress(&content, (block.plain_bytes as usize).min(MAX_BLOCK_BYTES)) {
                Ok(plain) => content = plain,
                Err(_) => return Ok(None),
            }
        }
        // A segment that waits to be compressed has no checksums. What a file system leaves where it has not written is zeros, and no
        // line of text has one.
        let whole = content.len() == block.plain_bytes as usize
            && content.last() == Some(&b'\n')
            && memchr_iter(b'\n', &content).count() == block.lines as usize
            && (self.packed || block.checksum.is_some() || memchr(0, &content).is_none());
        Ok(whole.then_some(content))
    }
}

/// Looks up and opens until the file found is there.
fn source(partition: &Partition, from: u64) -> Result<Option<BlockSource>, ReadError> {
    let mut attempt = 0;
    loop {
        let place = partition.shelf().find(from);
        let Some(place) = place else { return Ok(None) };
        attempt += 1;
        match BlockSource::open(partition, &place, from) {
            Ok(source) => return Ok(Some(source)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads lines from an offset on, to the end of their segment at most. The first line comes even if it is
/// longer than `max_bytes`.
pub(crate) fn read(
    partition: &Partition,
    from: u64,
    max_lines: u64,
    max_bytes: usize,
) -> Result<ReadLines, ReadError> {
    let range = partition.shelf().range();
    if from < range.start {
        return Err(ReadError::Gone { oldest: range.start });
    }
    if from > range.end {
        return Err(ReadError::Beyond { next: range.end });
    }
    let nothing = |first, missing| ReadLines {
        first_offset: first,
        lines: Bytes::new(),
        count: 0,
        next_offset: first,
        missing,
    };
    let Some(source) = source(partition, from)? else {
        let lost = (from < range.end).then_some(from..range.end);
        return Ok(nothing(range.end, lost));
    };
    if source.first > from {
        return Ok(nothing(source.first, Some(from..source.first)));
    }
    let mut unpacker = Decompressor::new()?;
    let mut lines = Vec::new();
    let mut next = from;
    for block in &source.blocks {
        let Some(content) = source.load(block, &mut unpacker)? else {
            if next == from {
                count(&partition.counters.damaged_blocks, 1);
                next = (source.first + block.first + u64::from(block.lines)).min(source.end);
                return Ok(nothing(next, Some(from..next)));
            }
            break;
        };
        let skip = next.saturating_sub(source.first + block.first);
        let mut rest = after_lines(&content, skip);
        while next < source.end && next - from < max_lines {
            let Some(end) = memchr(b'\n', rest) else { break };
            if next > from && lines.len() + end >= max_bytes {
                return Ok(found(from, next, lines));
            }
            lines.extend_from_slice(&rest[..=end]);
            rest = &rest[end + 1..];
            next += 1;
        }
        if next - from >= max_lines || next >= source.end {
            break;
        }
    }
    Ok(found(from, next, lines))
}

fn found(from: u64, next: u64, lines: Vec<u8>) -> ReadLines {
    ReadLines {
        first_offset: from,
        lines: lines.into(),
        count: next - from,
        next_offset: next,
        missing: None,
    }
}

fn after_lines(content: &[u8], lines: u64) -> &[u8] {
    let Some(before) = lines.checked_sub(1) else { return content };
    let last = memchr_iter(b'\n', content).nth(usize::try_from(before).unwrap_or(usize::MAX));
    last.map_or(&[], |end| &content[end + 1..])
}

/// Hands out the lines with a name and a time between two, in the order of their offsets.
pub(crate) fn scan(
    partition: &Partition,
    scan: &Scan<'_>,
    so_far: &mut Scanned,
    each: &mut dyn FnMut(&[u8], &Description<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ReadError> {
    let digest = NameDigest::of(scan.name);
    let finder = plain(scan.name).then(|| memmem::Finder::new(scan.name));
    let mut unpacker = Decompressor::new()?;
    let mut offset = partition.shelf().range().start;
    loop {
        offset = after_hopeless(partition, offset, scan);
        let Some(source) = source(partition, offset)? else { return Ok(ControlFlow::Continue(())) };
        for block in &source.blocks {
            if !block.times.meet(scan.start_ms, scan.end_ms) || !block.may_hold(digest) {
                so_far.blocks_skipped += 1;
                continue;
            }
            let late = (partition.clock.monotonic)() >= scan.deadline;
            if late || so_far.bytes + u64::from(block.plain_bytes) > scan.max_bytes {
                return Ok(ControlFlow::Break(()));
            }
            so_far.blocks_read += 1;
            so_far.bytes += u64::from(block.plain_bytes);
            let Some(content) = source.load(block, &mut unpacker)? else {
                so_far.blocks_damaged += 1;
                count(&partition.counters.damaged_blocks, 1);
                continue;
            };
            let ours = source.end.saturating_sub(source.first + block.first);
            let mut rest =
                if ours < u64::from(block.lines) { first_lines(&content, ours) } else { &content[..] };
            while let Some(line) = next_with(finder.as_ref(), &mut rest) {
                let Some(description) = partition.describe.describe(line) else { continue };
                let in_time = (scan.start_ms..scan.end_ms).contains(&description.ms);
                if in_time && description.name == scan.name {
                    so_far.lines += 1;
                    if each(line, &description).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        offset = source.end.max(offset + 1);
    }
}

/// The lines before the line with this number, counted from 0.
fn first_lines(content: &[u8], lines: u64) -> &[u8] {
    let rest = after_lines(content, lines);
    &content[..content.len() - rest.len()]
}

/// Takes the next line that has what `finder` looks for, of whole lines; the next one without it. One search goes over
/// all lines: a search in each of a thousand short lines costs several times as much.
fn next_with<'a>(finder: Option<&memmem::Finder<'_>>, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let hit = finder.map_or(Some(0), |finder| finder.find(rest))?;
    let start = memrchr(b'\n', &rest[..hit]).map_or(0, |at| at + 1);
    let end = hit + memchr(b'\n', &rest[hit..])?;
    let line = &rest[start..end];
    *rest = &rest[end + 1..];
    Some(line)
}

/// Whether a name stands in a line as it is, with nothing that might be escaped.
fn plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte))
}

/// The first offset from here whose segment can have lines in the time wanted.
fn after_hopeless(partition: &Partition, offset: u64, scan: &Scan<'_>) -> u64 {
    let shelf = partition.shelf();
    let at = shelf.sealed.partition_point(|segment| segment.end() <= offset);
    let hopeless =
        shelf.sealed[at..].iter().take_while(|segment| !segment.times.meet(scan.start_ms, scan.end_ms));
    hopeless.last().map_or(offset, |segment| segment.end())
}
