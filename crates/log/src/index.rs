//! The index of a segment, which is used without reading the segment: where its blocks begin, which lines they hold, and what
//! can be in them.
//!
//! ```text
//!   segment   | block 0: some 256 KiB of whole lines | block 1 | ... | the last one, shorter |
//!   index     | place, length, first line, lines, times, digests of names | ...              | checksum
//! ```
//!
//! A block of a compressed segment is one zstd frame, so it is read without those before it. An index is
//! never needed: it is rebuilt from its segment when it is missing, damaged, or of another length.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::settings::{Fact, MAX_LINE_BYTES, NameDigest};

/// A block that reached this length ends.
pub(crate) const BLOCK_BYTES: u32 = 256 << 10;
/// No block is longer, before compression.
pub(crate) const MAX_BLOCK_BYTES: usize = BLOCK_BYTES as usize + MAX_LINE_BYTES;
/// A longer index file is not read. A segment of 1 GiB in lines of 40 bytes has 110 MB.
pub(crate) const MAX_INDEX_BYTES: usize = 256 << 20;

const MAGIC: &[u8; 8] = b"tdglidx1";

/// The earliest and the latest time of some lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeRange {
    pub(crate) earliest: i64,
    pub(crate) latest: i64,
}

impl TimeRange {
    /// Of no lines.
    pub(crate) const NONE: Self = Self { earliest: i64::MAX, latest: i64::MIN };

    fn add(&mut self, ms: i64) {
        self.earliest = self.earliest.min(ms);
        self.latest = self.latest.max(ms);
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.earliest = self.earliest.min(other.earliest);
        self.latest = self.latest.max(other.latest);
    }

    /// Whether a line from `start` on and before `end` can be among them.
    pub(crate) fn meet(self, start: i64, end: i64) -> bool {
        self.earliest < end && self.latest >= start
    }
}

/// Some lines that are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where it is in the file, and how long.
    pub(crate) start: u64,
    pub(crate) bytes: u32,
    /// Its length before compression.
    pub(crate) plain_bytes: u32,
    /// The number of its first line, counted from the segment's first.
    pub(crate) first: u64,
    pub(crate) lines: u32,
    pub(crate) times: TimeRange,
    /// Of the bytes in the file. Compressed blocks have their own, and the block under way has none yet.
    pub(crate) checksum: Option<u64>,
    /// Sorted; `None` where any name can be inside.
    pub(crate) names: Option<Box<[NameDigest]>>,
}

impl Block {
    pub(crate) fn may_hold(&self, name: NameDigest) -> bool {
        self.names.as_ref().is_none_or(|names| names.binary_search(&name).is_ok())
    }

    /// Whether these are its bytes, as far as it knows.
    pub(crate) fn is_of(&self, content: &[u8]) -> bool {
        content.len() == self.bytes as usize && self.checksum.is_none_or(|sum| sum == checksum(content))
    }
}

/// A whole segment's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) packed: bool,
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl Index {
    pub(crate) fn lines(&self) -> u64 {
        self.blocks.last().map_or(0, |last| last.first + u64::from(last.lines))
    }

    /// The length of the segment's file.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.last().map_or(0, |last| last.start + u64::from(last.bytes))
    }

    pub(crate) fn times(&self) -> TimeRange {
        self.blocks.iter().fold(TimeRange::NONE, |mut all, block| {
            all.join(block.times);
            all
        })
    }

    /// The block that has the line of this number, and those after it.
    pub(crate) fn blocks_from(&self, line: u64) -> &[Arc<Block>] {
        let after = self.blocks.partition_point(|block| block.first <= line);
        &self.blocks[after.saturating_sub(1)..]
    }

    /// How long the file will be.
    pub(crate) fn encoded_len(&self) -> u64 {
        let names = self.blocks.iter().map(|block| block.names.as_ref().map_or(0, |names| names.len()));
        (MAGIC.len() + 5 + 8 + names.map(|names| 50 + 4 * names).sum::<usize>()) as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::try_from(self.encoded_len()).unwrap_or(0));
        out.extend_from_slice(MAGIC);
        out.push(u8::from(self.packed));
        out.extend_from_slice(&length(self.blocks.len()));
        for block in &self.blocks {
            out.extend_from_slice(&block.start.to_le_bytes());
            out.extend_from_slice(&block.bytes.to_le_bytes());
            out.extend_from_slice(&block.plain_bytes.to_le_bytes());
            out.extend_from_slice(&block.lines.to_le_bytes());
            out.extend_from_slice(&block.times.earliest.to_le_bytes());
            out.extend_from_slice(&block.times.latest.to_le_bytes());
            out.push(u8::from(block.checksum.is_some()));
            out.extend_from_slice(&block.checksum.unwrap_or(0).to_le_bytes());
            let names = block.names.as_deref().unwrap_or_default();
            out.push(u8::from(block.names.is_some()));
            out.extend_from_slice(&length(names.len()));
            for name in names {
                out.extend_from_slice(&name.0.to_le_bytes());
            }
        }
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads an index file; `None` for anything else. Blocks that do not follow one another are refused.
    pub(crate) fn decode(content: &[u8]) -> Option<Self> {
        let (content, sum) = content.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != checksum(content) {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let packed = take::<1>(&mut rest)?[0] == 1;
        let count = u32::from_le_bytes(take(&mut rest)?);
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        let (mut first, mut place) = (0_u64, 0_u64);
        for _ in 0..count {
            let start = u64::from_le_bytes(take(&mut rest)?);
            let bytes = u32::from_le_bytes(take(&mut rest)?);
            let plain_bytes = u32::from_le_bytes(take(&mut rest)?);
            let lines = u32::from_le_bytes(take(&mut rest)?);
            let earliest = i64::from_le_bytes(take(&mut rest)?);
            let latest = i64::from_le_bytes(take(&mut rest)?);
            let summed = take::<1>(&mut rest)?[0] == 1;
            let sum = u64::from_le_bytes(take(&mut rest)?);
            let named = take::<1>(&mut rest)?[0] == 1;
            let names = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
            let (these, others) = rest.split_at_checked(names.checked_mul(4)?)?;
            rest = others;
            if start != place || lines == 0 || plain_bytes as usize > MAX_BLOCK_BYTES {
                return None;
            }
            let names = these.chunks_exact(4).map(|name| NameDigest(word(name)));
            blocks.push(Arc::new(Block {
                start,
                bytes,
                plain_bytes,
                first,
                lines,
                times: TimeRange { earliest, latest },
                checksum: summed.then_some(sum),
                names: named.then(|| names.collect()),
            }));
            first += u64::from(lines);
            place = place.checked_add(u64::from(bytes))?;
        }
        rest.is_empty().then_some(Self { packed, blocks })
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn length(length: usize) -> [u8; 4] {
    // Invariant: a segment has fewer than 2^32 blocks and a block fewer names, both by their bytes.
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (these, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*these)
}

pub(crate) fn checksum(content: &[u8]) -> u64 {
    SipHasher13::new_with_keys(0x7469_6465, 0x6761_7465).hash(content)
}

/// A set of digests needs no hash of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.write_u32(word(bytes));
    }

    fn write_u32(&mut self, digest: u32) {
        self.0 = u64::from(digest).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Makes the index of a plain segment, line by line.
#[derive(Debug)]
pub(crate) struct Indexer {
    start: u64,
    bytes: u32,
    first: u64,
    lines: u32,
    times: TimeRange,
    names: HashSet<NameDigest, BuildHasherDefault<Spread>>,
    last: Option<NameDigest>,
    block_bytes: u32,
}

impl Default for Indexer {
    fn default() -> Self {
        Self {
            block_bytes: BLOCK_BYTES,
            start: 0,
            bytes: 0,
            first: 0,
            lines: 0,
            times: TimeRange::NONE,
            names: HashSet::default(),
            last: None,
        }
    }
}

impl Indexer {
    /// For lines whose block is given: it ends with them only.
    pub(crate) fn unending() -> Self {
        Self { block_bytes: u32::MAX, ..Self::default() }
    }

    /// Adds the next line. Answers with the block that ends with it, if one does.
    pub(crate) fn add(&mut self, fact: &Fact) -> Option<Block> {
        self.bytes += fact.bytes;
        self.lines += 1;
        self.times.add(fact.ms);
        if self.last != Some(fact.name) {
            self.names.insert(fact.name);
            self.last = Some(fact.name);
        }
        (self.bytes >= self.block_bytes).then(|| self.end()).flatten()
    }

    /// Ends the block under way, if it has lines.
    pub(crate) fn end(&mut self) -> Option<Block> {
        let mut block = self.open()?;
        let mut names: Box<[NameDigest]> = self.names.drain().collect();
        names.sort_unstable();
        block.names = Some(names);
        self.start += u64::from(self.bytes);
        self.first += u64::from(self.lines);
        (self.bytes, self.lines, self.times, self.last) = (0, 0, TimeRange::NONE, None);
        Some(block)
    }

    /// The block under way as it is, without its names.
    pub(crate) fn open(&self) -> Option<Block> {
        (self.lines > 0).then_some(Block {
            start: self.start,
            bytes: self.bytes,
            plain_bytes: self.bytes,
            first: self.first,
            lines: self.lines,
            times: self.times,
            checksum: None,
            names: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Index {
        let mut indexer = Indexer::default();
        let mut blocks = Vec::new();
        for line in 0..10_000_u32 {
            let name = NameDigest::of(["cpu", "memory", "disk"][line as usize % 3]);
            blocks.extend(indexer.add(&Fact { name, bytes: 100, ms: i64::from(line) * 10 }));
        }
        blocks.extend(indexer.end());
        Index { packed: false, blocks: blocks.into_iter().map(Arc::new).collect() }
    }

    #[test]
    fn what_was_written_is_read() {
        let index = sample();
        let encoded = index.encode();
        assert_eq!(encoded.len() as u64, index.encoded_len());
        assert_eq!(Index::decode(&encoded), Some(index.clone()));
        assert_eq!((index.lines(), index.bytes(), index.blocks.len()), (10_000, 1_000_000, 4));
        assert_eq!(index.times(), TimeRange { earliest: 0, latest: 99_990 });
        assert!(index.blocks.iter().all(|block| block.may_hold(NameDigest::of("cpu"))));
        assert!(!index.blocks.iter().any(|block| block.may_hold(NameDigest::of("absent"))));
    }

    #[test]
    fn a_changed_or_cut_index_is_none() {
        let encoded = sample().encode();
        for cut in 0..encoded.len() {
            assert_eq!(Index::decode(&encoded[..cut]), None, "cut at {cut}");
        }
        for place in 0..encoded.len() {
            let mut changed = encoded.clone();
            changed[place] ^= 0x10;
            assert_eq!(Index::decode(&changed), None, "changed at {place}");
        }
    }

    #[test]
    fn a_line_is_found_in_its_block() {
        let index = sample();
        for line in [0, 1, 2_621, 2_622, 9_999] {
            let block = &index.blocks_from(line)[0];
            assert!((block.first..block.first + u64::from(block.lines)).contains(&line), "{line}");
        }
    }
}
