//! The sealer: one thread of low priority that gives sealed segments their index file and compresses them.
//!
//! ```text
//!   x.jsonl                                  sealed, its index in memory
//!   x.jsonl  x.index                         a start trusts it without reading it
//!   x.jsonl  x.index    x.jsonl.zst.unfinished
//!   x.jsonl  x.index    x.jsonl.zst          renamed when it was synced; readers go to it
//!            x.index'   x.jsonl.zst          the new index, and the plain file removed
//! ```
//!
//! While an index file is exchanged, readers have the index in memory. A crash at any line leaves at least one
//! whole form; `recovery.rs` picks it. What cannot be done now, as on a full disk, is done later: nothing depends
//! on it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use crate::files::{Readable, read_full, replace, unfinished, write_all};
use crate::index::{Block, Index, checksum};
use crate::partition::Partition;
use crate::segment::{INDEX, PACKED, Seals, Segment, file_name};

/// When it looks again after it could not do something.
const RETRY: Duration = Duration::from_secs(60);
/// Fast: it keeps up with a disk of a few hundred MB/s on one core, and lines of JSON shrink to a tenth.
const LEVEL: i32 = 1;
/// How much it gives way to other threads.
const NICENESS: i32 = 10;

/// Works until the log closes, then writes the indexes that are missing.
pub(crate) fn run(partitions: &[Arc<Partition>], seals: &Seals) {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "segments are compressed at the usual priority");
    }
    loop {
        let again = seals.wait(RETRY);
        for partition in partitions {
            if let Err(error) = pass(partition, seals) {
                tracing::warn!(folder = %partition.folder.display(), %error, "a sealed segment stays as it is for now");
            }
        }
        if !again {
            return;
        }
    }
}

fn pass(partition: &Partition, seals: &Seals) -> io::Result<()> {
    while let Some(segment) = find(partition, |segment| segment.index.is_some()) {
        write_index(partition, &segment)?;
    }
    while partition.bounds.settings.compress && !seals.is_closing() {
        let Some(segment) = find(partition, |segment| !segment.packed && segment.index.is_none()) else {
            break;
        };
        match pack(partition, &segment, seals) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let path = segment.path(&partition.folder);
                tracing::error!(segment = %path.display(), %error, "a damaged segment stays as it is");
                partition.change_shelf().exchange(Segment { suspect: true, ..Segment::clone(&segment) });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn find(partition: &Partition, wanted: impl Fn(&Segment) -> bool) -> Option<Arc<Segment>> {
    let shelf = partition.shelf();
    shelf.sealed.iter().find(|segment| !segment.suspect && wanted(segment)).map(Arc::clone)
}

fn write_index(partition: &Partition, segment: &Segment) -> io::Result<()> {
    let Some(index) = &segment.index else { return Ok(()) };
    let path = partition.folder.join(file_name(segment.first, INDEX));
    // What will be compressed gets the checksums of zstd's frames.
    let index = match segment.packed || partition.bounds.settings.compress {
        true => Index::clone(index),
        false => with_checksums(partition, segment, index)?,
    };
    replace(&*partition.files, &path, &index.encode())?;
    let written = Segment { index: None, ..segment.clone() };
    if !partition.change_shelf().exchange(written) {
        partition.remove_index(segment)?;
    }
    match segment.packed {
        true => partition.remove_plain(segment),
        false => Ok(()),
    }
}

fn with_checksums(partition: &Partition, segment: &Segment, index: &Index) -> io::Result<Index> {
    let file = partition.files.open(&segment.path(&partition.folder))?;
    let mut blocks = Vec::with_capacity(index.blocks.len());
    let mut content = Vec::new();
    for block in &index.blocks {
        read_block(&*file, block, &mut content)?;
        blocks.push(Arc::new(Block { checksum: Some(checksum(&content)), ..Block::clone(block) }));
    }
    Ok(Index { packed: false, blocks })
}

fn read_block(file: &dyn Readable, block: &Block, content: &mut Vec<u8>) -> io::Result<()> {
    content.resize(block.bytes as usize, 0);
    let read = read_full(file, content, block.start)?;
    let whole = block.is_of(&content[..read]);
    whole.then_some(()).ok_or_else(|| damaged("it is not as its index says"))
}

/// The segment's own fault, which another attempt does not mend.
fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Compresses a segment; `false` if the log is closing.
fn pack(partition: &Partition, segment: &Arc<Segment>, seals: &Seals) -> io::Result<bool> {
    let files = &*partition.files;
    let index = partition.index_of(segment)?;
    let path = partition.folder.join(file_name(segment.first, PACKED));
    let packed = match write_packed(partition, segment, &index, &path, seals) {
        Ok(Some(packed)) => packed,
        stopped => {
            // It is in the way of nothing: a start removes it, too.
            drop(files.remove(&unfinished(&path)));
            return stopped.map(|_| false);
        }
    };
    files.rename(&unfinished(&path), &path)?;
    files.sync_folder(&partition.folder)?;
    let now = Segment {
        packed: true,
        bytes: packed.bytes(),
        index_bytes: packed.encoded_len(),
        index: Some(Arc::new(packed)),
        ..Segment::clone(segment)
    };
    let packed = now.clone();
    let still_there = partition.change_shelf().exchange(now);
    match still_there {
        true => write_index(partition, &packed)?,
        false => files.remove(&path)?,
    }
    Ok(true)
}

fn write_packed(
    partition: &Partition,
    segment: &Segment,
    index: &Index,
    path: &Path,
    seals: &Seals,
) -> io::Result<Option<Index>> {
    let plain = partition.files.open(&segment.path(&partition.folder))?;
    let mut out = partition.files.create(&unfinished(path))?;
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    let mut blocks = Vec::with_capacity(index.blocks.len());
    let mut content = Vec::new();
    let mut start = 0;
    for block in &index.blocks {
        if seals.is_closing() {
            return Ok(None);
        }
        read_block(&*plain, block, &mut content)?;
        let frame = compressor.compress(&content)?;
        write_all(&mut *out, std::iter::once(&*frame))?;
        // Invariant: a frame is hardly longer than its block, which is far below 2^32.
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        blocks.push(Arc::new(Block { start, bytes, checksum: None, ..Block::clone(block) }));
        start += u64::from(bytes);
    }
    out.sync()?;
    Ok(Some(Index { packed: true, blocks }))
}
