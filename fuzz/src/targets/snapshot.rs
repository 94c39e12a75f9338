//! Any bytes give a restored store or an error, and what was restored can be saved and restored again.
//!
//! Checksums would keep the fuzzer out of everything behind them, so each input is also taken as the
//! entries of one block that is then sealed as the store seals it.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::memory::snapshot::Restored;
use tidegate_store::memory::{MIN_MAX_BYTES, Memory};

const NOW: Now = Now {
    tick: tidegate_algorithms::time::Tick(1_767_225_600 * SECOND),
    wall: tidegate_algorithms::time::Wall(1_767_225_600 * SECOND),
};

pub(super) fn run(data: &[u8]) {
    check(data);
    if let Some((count, entries)) = data.split_first() {
        check(&sealed(u32::from(*count), entries));
    }
}

fn check(mut bytes: &[u8]) {
    let Ok(Restored { memory, .. }) = Memory::restore(MIN_MAX_BYTES, &mut bytes, NOW) else { return };
    let mut again = Vec::new();
    let written = memory.snapshot(&mut again, NOW).expect("a vector takes everything");
    let restored = Memory::restore(MIN_MAX_BYTES, &mut again.as_slice(), NOW).expect("our own snapshot");
    assert_eq!(restored.memory.stats().entries, written.entries);
}

/// A snapshot under an all-zero key, written at tick 0, with one block of `count` entries.
fn sealed(count: u32, entries: &[u8]) -> Vec<u8> {
    let mut bytes = [b"TGSNAP".as_slice(), &2_u16.to_le_bytes(), &[0; 24]].concat();
    let sum = checksum(0, &bytes);
    bytes.extend(sum);
    bytes.extend(block(1, count, entries));
    bytes.extend(block(2, 0, &u64::from(count).to_le_bytes()));
    bytes
}

fn block(number: u64, count: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("inputs are short");
    let body = [&length.to_le_bytes(), &count.to_le_bytes(), payload].concat();
    [body.as_slice(), &checksum(number, &body)].concat()
}

fn checksum(number: u64, bytes: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher13::new_with_key(&[0; 16]);
    hasher.write(&number.to_le_bytes());
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}
