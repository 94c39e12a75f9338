//! Snapshots: what the memory store knows, as bytes, so that a deploy does not hand everyone a
//! fresh window.
//!
//! ```text
//!   header   "TGSNAP" | version u16 | hash key, 16 bytes | tick u64 | checksum u64
//!   block    length u32 | entries u32 | entries (codec.rs) | checksum u64      any number of these
//!   end      length u32 = 8 | entries u32 = 0 | number of all entries u64 | checksum u64
//! ```
//!
//! Written shard by shard, each locked only while its ~1,000 entries are copied: the world goes on.
//! So a snapshot is of no one instant, which is sound since keys do not depend on each other; what
//! is charged after its shard was copied is lost with the process, and a restart then admits at
//! most that much again per key.
//!
//! Read whole or not at all: a snapshot that is torn, altered or of another version gives an error
//! and no store, and the caller starts an empty one. A block's checksum covers its position, so
//! that blocks of another file or order do not pass. The hash key travels with the entries, which
//! could not be found without it; that is why the file is its owner's alone ([`save`]).
//!
//! The restoring process may have another cap: entries that do not fit are evicted as always.
//! Entries that have expired meanwhile are left out.
//!
//! The tick is the time of the writer's timeline at which it was written. A process whose civil clock shows
//! less continues that timeline, so that time does not go back under the keys: a bucket would else be
//! empty for a full span, since its state came from the future.
//!
//! Deliberately absent: when to snapshot, and whether to: the binary knows.

mod codec;
mod file;

use std::hash::Hasher;
use std::io::{self, Read, Write};

use siphasher::sip::SipHasher13;
use thiserror::Error;
use tidegate_algorithms::time::{Now, Tick};

use super::{HashKey, Memory, hold};
pub use file::{load, save};

const MAGIC: &[u8; 6] = b"TGSNAP";
/// Version of the format that is written, and the only one that is read.
const VERSION: u16 = 2;
/// A block is closed once it is this long.
const BLOCK: usize = 256 << 10;
/// Longest block that is read: a full one and the largest entry, with room to spare.
const MAX_BLOCK: u32 = 1 << 20;
/// Bytes of a header before its checksum.
const HEADER: usize = MAGIC.len() + 2 + 16 + 8;

/// What a snapshot described.
#[derive(Debug)]
pub struct Restored {
    /// The store.
    pub memory: Memory,
    /// When it was written, on its writer's timeline. Decisions are to be made at no earlier time.
    pub written: Tick,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Keys.
    pub entries: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// Why a snapshot was not written or restored.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The bytes are not a snapshot's.
    #[error("this is not a snapshot")]
    Foreign,
    /// A snapshot, in a format that this version does not read.
    #[error("the snapshot has format {0}, and this version reads {VERSION}")]
    Version(u16),
    /// The bytes end too early: the writer was interrupted.
    #[error("the snapshot ends too early, in block {block}")]
    Truncated {
        /// Blocks before the break; 0 in the header.
        block: u64,
    },
    /// A checksum or a value is wrong: the bytes were altered.
    #[error("the snapshot is damaged in block {block}")]
    Damaged {
        /// Blocks before the damage; 0 in the header.
        block: u64,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Memory {
    /// Writes what is known at `now`, one shard after the other, in pieces of about 256 KiB.
    ///
    /// # Errors
    /// Those of `output`, after which what was written is to be thrown away.
    pub fn snapshot(&self, output: &mut impl Write, now: Now) -> io::Result<Written> {
        let mut blocks = Blocks::start(self.identity.key(), now.tick);
        let mut written = Written::default();
        for slot in &self.shards {
            let shard = hold(&slot.0);
            for (hash, state) in shard.live(now) {
                codec::encode(hash, state, &mut blocks.open);
                blocks.entries += 1;
                if blocks.open.len() >= BLOCK {
                    blocks.close();
                }
            }
            drop(shard);
            written.bytes += blocks.flush(output)?;
        }
        written.entries = blocks.end();
        written.bytes += blocks.flush(output)?;
        Ok(written)
    }

    /// A store of at most `max_bytes` with what `input` says is known and has not expired at `now`, or when it
    /// was written if that is later.
    ///
    /// # Errors
    /// When `input` is not a whole, unaltered snapshot of this version; any bytes may be given.
    pub fn restore(max_bytes: usize, input: &mut impl Read, now: Now) -> Result<Restored, SnapshotError> {
        let (key, written) = header(input)?;
        let now = Now { tick: now.tick.max(written), ..now };
        let memory = Self::with_key(max_bytes, key);
        let mut payload = Vec::new();
        let mut total = 0;
        let mut block = 0;
        loop {
            block += 1;
            let damaged = || SnapshotError::Damaged { block };
            let entries = read_block(input, key, block, &mut payload)?;
            let mut rest = payload.as_slice();
            if entries == 0 {
                let whole = rest == u64::to_le_bytes(total) && read_up_to(input, 1, &mut payload)? == 0;
                return if whole { Ok(Restored { memory, written }) } else { Err(damaged()) };
            }
            for _ in 0..entries {
                let (hash, state) = codec::decode(&mut rest).ok_or_else(damaged)?;
                let mut shard = hold(memory.shard(hash));
                shard.with_state(hash, now, &memory.reserve, |fresh| *fresh = state);
            }
            if !rest.is_empty() {
                return Err(damaged());
            }
            total += u64::from(entries);
        }
    }
}

/// Blocks in the making.
struct Blocks {
    key: HashKey,
    /// Closed blocks that are to be written.
    closed: Vec<u8>,
    /// Entries of the block that is open.
    open: Vec<u8>,
    entries: u32,
    /// Blocks closed so far, and entries in them.
    number: u64,
    total: u64,
}

impl Blocks {
    fn start(key: HashKey, written: Tick) -> Self {
        let mut closed = Vec::with_capacity(2 * BLOCK);
        closed.extend_from_slice(MAGIC);
        closed.extend_from_slice(&VERSION.to_le_bytes());
        closed.extend_from_slice(&key.0);
        closed.extend_from_slice(&written.0.to_le_bytes());
        closed.extend_from_slice(&checksum(key, 0, [&closed, &[]]));
        Self { key, closed, open: Vec::with_capacity(2 * BLOCK), entries: 0, number: 0, total: 0 }
    }

    fn close(&mut self) {
        self.number += 1;
        self.total += u64::from(self.entries);
        let start = self.closed.len();
        let length = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        self.closed.extend_from_slice(&length.to_le_bytes());
        self.closed.extend_from_slice(&self.entries.to_le_bytes());
        self.closed.append(&mut self.open);
        let sum = checksum(self.key, self.number, [&self.closed[start..], &[]]);
        self.closed.extend_from_slice(&sum);
        self.entries = 0;
    }

    /// Closes what is open and adds the end. The number of all entries.
    fn end(&mut self) -> u64 {
        if self.entries > 0 {
            self.close();
        }
        self.open.extend_from_slice(&self.total.to_le_bytes());
        self.close();
        self.total
    }

    fn flush(&mut self, output: &mut impl Write) -> io::Result<u64> {
        output.write_all(&self.closed)?;
        let bytes = self.closed.len() as u64;
        self.closed.clear();
        Ok(bytes)
    }
}

fn header(input: &mut impl Read) -> Result<(HashKey, Tick), SnapshotError> {
    let mut bytes = Vec::new();
    read_up_to(input, HEADER + 8, &mut bytes)?;
    let common = bytes.len().min(MAGIC.len());
    if bytes[..common] != MAGIC[..common] || bytes.is_empty() {
        return Err(SnapshotError::Foreign);
    }
    if bytes.len() < HEADER + 8 {
        return Err(SnapshotError::Truncated { block: 0 });
    }
    let version = u16::from_le_bytes([bytes[6], bytes[7]]);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (mut key, mut written) = (HashKey([0; 16]), [0; 8]);
    key.0.copy_from_slice(&bytes[8..24]);
    written.copy_from_slice(&bytes[24..HEADER]);
    if bytes[HEADER..] != checksum(key, 0, [&bytes[..HEADER], &[]]) {
        return Err(SnapshotError::Damaged { block: 0 });
    }
    Ok((key, Tick(u64::from_le_bytes(written))))
}

/// Reads block number `block` into `payload` and returns how many entries it says it has.
fn read_block(
    input: &mut impl Read,
    key: HashKey,
    block: u64,
    payload: &mut Vec<u8>,
) -> Result<u32, SnapshotError> {
    let truncated = SnapshotError::Truncated { block };
    if read_up_to(input, 8, payload)? < 8 {
        return Err(truncated);
    }
    let mut head = [0; 8];
    head.copy_from_slice(payload);
    let [length, entries] = halves(head);
    if length > MAX_BLOCK {
        return Err(SnapshotError::Damaged { block });
    }
    let wanted = usize::try_from(length).unwrap_or(usize::MAX) + 8;
    if read_up_to(input, wanted, payload)? < wanted {
        return Err(truncated);
    }
    let sum = payload.split_off(wanted - 8);
    if sum != checksum(key, block, [&head, payload]) {
        return Err(SnapshotError::Damaged { block });
    }
    Ok(entries)
}

fn halves([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u32; 2] {
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Reads until `wanted` bytes or the end. How many were read; memory is taken as they arrive.
fn read_up_to(input: &mut impl Read, wanted: usize, bytes: &mut Vec<u8>) -> io::Result<usize> {
    bytes.clear();
    input.take(wanted as u64).read_to_end(bytes)
}

/// Guards against damage, not against an author: who can write the file can compute it.
fn checksum(key: HashKey, block: u64, parts: [&[u8]; 2]) -> [u8; 8] {
    let mut hasher = SipHasher13::new_with_key(&key.0);
    hasher.write(&block.to_le_bytes());
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish().to_le_bytes()
}
