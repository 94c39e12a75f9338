//! Snapshots: what is kept, what is left out, and what bytes that are no snapshot give.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId, SlidingLog};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::memory::snapshot::{self, SnapshotError};
use tidegate_store::memory::{HashKey, Memory};
use tidegate_store::{Answer, Charge, Intent};

const CAP: usize = 1 << 20;
const NOW: u64 = 1_767_225_600 * SECOND;

fn bucket() -> Limit {
    Limit::TokenBucket(Bucket::new(10, 10, 60 * SECOND))
}

fn spend(memory: &Memory, nanos: u64, limit: &Limit, key: &[u8], cost: u64) -> Answer {
    let mut answer = Answer::default();
    let charge = Charge { limit, key, cost, binding: true, on_failure: OnStoreFailure::Local };
    memory.decide(Now::at(nanos), &[charge], Intent::Spend(PermitId(1)), &mut answer);
    answer
}

fn remaining(memory: &Memory, nanos: u64, limit: &Limit, key: &[u8]) -> u64 {
    spend(memory, nanos, limit, key, 0).verdicts[0].remaining
}

/// A store in which `keys` keys have used 4 of 10 units, and its snapshot.
fn filled(keys: u32) -> (Memory, Vec<u8>) {
    let memory = Memory::with_key(CAP, HashKey([5; 16]));
    for number in 0..keys {
        assert!(spend(&memory, NOW, &bucket(), &number.to_be_bytes(), 4).allowed);
    }
    let mut bytes = Vec::new();
    let written = memory.snapshot(&mut bytes, Now::at(NOW)).expect("a vector takes everything");
    assert_eq!((written.entries, written.bytes), (u64::from(keys), bytes.len() as u64));
    (memory, bytes)
}

fn restore(mut bytes: &[u8]) -> Result<Memory, SnapshotError> {
    Memory::restore(CAP, &mut bytes, Now::at(NOW)).map(|restored| restored.memory)
}

#[test]
fn a_restart_keeps_counters_in_any_cap() {
    let (_, bytes) = filled(15_000);
    for cap in [CAP, 16 * CAP, 7 * CAP] {
        let restored = Memory::restore(cap, &mut bytes.as_slice(), Now::at(NOW)).expect("whole").memory;
        assert_eq!(restored.stats().entries, 15_000);
        assert_eq!(restored.stats().evicted_live, 0);
        for number in [0_u32, 1, 7_777, 14_999] {
            assert_eq!(remaining(&restored, NOW, &bucket(), &number.to_be_bytes()), 6);
        }
        assert_eq!(remaining(&restored, NOW, &bucket(), b"new"), 10);
    }
}

#[test]
fn an_empty_store_has_a_snapshot() {
    let (_, bytes) = filled(0);
    assert_eq!(restore(&bytes).expect("whole").stats().entries, 0);
}

#[test]
fn what_has_expired_is_left_out() {
    let (memory, _) = filled(100);
    spend(&memory, NOW, &bucket(), b"longer", 10);
    let later = NOW + 30 * SECOND;
    let mut bytes = Vec::new();
    assert_eq!(memory.snapshot(&mut bytes, Now::at(later)).expect("a vector").entries, 1);
    // And so is what expires while the process is down.
    let (_, bytes) = filled(100);
    let restored = Memory::restore(CAP, &mut bytes.as_slice(), Now::at(later)).expect("whole").memory;
    assert_eq!(restored.stats().entries, 0);
}

/// The civil clock went back between the two processes, and the timeline does not: what was left is left.
#[test]
fn fault_56_a_restart_continues_the_timeline_of_what_it_restores() {
    let (_, bytes) = filled(1);
    let back = Now::at(NOW - 3_600 * SECOND);
    let restored = Memory::restore(CAP, &mut bytes.as_slice(), back).expect("whole");
    assert_eq!(restored.written, Now::at(NOW).tick);
    let left = |tick: u64| remaining(&restored.memory, tick, &bucket(), &0_u32.to_be_bytes());
    assert_eq!((left(restored.written.0), left(restored.written.0 + 6 * SECOND)), (6, 7));
}

/// The clock went back between the two processes, for a caller who does not ask: nobody waits longer than from empty to full.
#[test]
fn states_from_the_future_are_clamped() {
    let (_, bytes) = filled(1);
    let hour = 3_600 * SECOND;
    let back = Now::at(NOW - hour);
    let restored = Memory::restore(CAP, &mut bytes.as_slice(), back).expect("whole").memory;
    let key = 0_u32.to_be_bytes();
    assert_eq!(remaining(&restored, NOW - hour, &bucket(), &key), 0, "no free refill");
    assert_eq!(remaining(&restored, NOW - hour + 60 * SECOND, &bucket(), &key), 10, "no lock-out");
}

#[test]
fn a_torn_tail_is_an_error_at_every_length() {
    let (_, bytes) = filled(40);
    for length in 0..bytes.len() {
        match restore(&bytes[..length]) {
            Err(SnapshotError::Truncated { .. }) => {}
            Err(SnapshotError::Foreign) if length == 0 => {}
            other => panic!("{length} of {} bytes give {other:?}", bytes.len()),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (_, bytes) = filled(40);
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut altered = bytes.clone();
            altered[position] ^= 1 << bit;
            assert!(restore(&altered).is_err(), "bit {bit} of byte {position}");
        }
    }
}

#[test]
fn blocks_cannot_be_dropped_or_swapped() {
    let (_, bytes) = filled(20_000);
    let header = 40;
    let length = |at: usize| {
        let bytes = bytes[at..at + 4].try_into().expect("four");
        usize::try_from(u32::from_le_bytes(bytes)).expect("small") + 16
    };
    let first = &bytes[header..header + length(header)];
    let second_at = header + first.len();
    let second = &bytes[second_at..second_at + length(second_at)];
    let rest = &bytes[second_at + second.len()..];
    assert!(restore(&[&bytes[..header], first, second, rest].concat()).is_ok());
    assert!(restore(&[&bytes[..header], second, first, rest].concat()).is_err(), "swapped");
    assert!(restore(&[&bytes[..header], first, rest].concat()).is_err(), "dropped");
    assert!(restore(&[&bytes[..header], first, first, second, rest].concat()).is_err(), "doubled");
    assert!(restore(&[bytes.as_slice(), b"\0"].concat()).is_err(), "followed by more");
}

#[test]
fn what_a_lowered_limit_cut_off_is_saved_too() {
    let of = |quota| Limit::TokenBucket(Bucket::new(quota, quota, 60 * SECOND));
    let memory = Memory::with_key(CAP, HashKey([5; 16]));
    spend(&memory, NOW, &of(100), b"lowered", 80);
    spend(&memory, NOW, &of(10), b"lowered", 1);
    let mut bytes = Vec::new();
    memory.snapshot(&mut bytes, Now::at(NOW)).expect("a vector takes everything");
    let restored = restore(&bytes).expect("whole");
    assert_eq!(remaining(&restored, NOW, &of(100), b"lowered"), 20);
}

#[test]
fn foreign_files_and_other_versions_are_told_apart() {
    let (_, mut bytes) = filled(3);
    assert!(matches!(restore(b"# a configuration file\n"), Err(SnapshotError::Foreign)));
    assert!(matches!(restore(&[0; 64]), Err(SnapshotError::Foreign)));
    bytes[6] = 1;
    assert!(matches!(restore(&bytes), Err(SnapshotError::Version(1))));
    assert!(matches!(restore(&bytes[..20]), Err(SnapshotError::Truncated { block: 0 })));
}

#[test]
fn a_smaller_cap_keeps_what_fits_and_counts_the_rest() {
    let memory = Memory::with_key(8 * CAP, HashKey([5; 16]));
    for number in 0..100_000_u32 {
        spend(&memory, NOW, &bucket(), &number.to_be_bytes(), 1);
    }
    let heavy = Limit::SlidingLog(SlidingLog { limit: 4_000, window: 60 * SECOND });
    for tick in 0..3_000 {
        spend(&memory, NOW + tick, &heavy, b"heavy", 1);
    }
    let mut bytes = Vec::new();
    memory.snapshot(&mut bytes, Now::at(NOW)).expect("a vector takes everything");
    let restored = restore(&bytes).expect("whole");
    let stats = restored.stats();
    assert!(stats.bytes <= stats.max_bytes);
    assert_eq!(stats.entries + stats.evicted_live, 100_001);
    assert_eq!(remaining(&restored, NOW + 3_000, &heavy, b"heavy"), 1_000, "the most used stays");
}

#[test]
fn a_file_is_replaced_whole_and_private() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("counters.snapshot");
    assert!(snapshot::load(CAP, &path, Now::at(NOW)).expect("absent is no error").is_none());

    fs::write(folder.path().join("counters.partial"), b"left by a crash").expect("writable");
    let (memory, bytes) = filled(1_000);
    let written = snapshot::save(&memory, &path, Now::at(NOW)).expect("writable");
    assert_eq!(written.entries, 1_000);
    assert_eq!(fs::read(&path).expect("there"), bytes);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing else is left");

    let restored = snapshot::load(CAP, &path, Now::at(NOW)).expect("whole").expect("there");
    assert_eq!(restored.memory.stats().entries, 1_000);

    fs::write(&path, &bytes[..bytes.len() - 3]).expect("writable");
    let torn = snapshot::load(CAP, &path, Now::at(NOW));
    assert!(matches!(torn, Err(SnapshotError::Truncated { .. })), "{torn:?}");
}

/// The disk may be full, and what is left beside would take its last room.
#[test]
fn a_file_that_cannot_be_replaced_leaves_nothing_beside() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (memory, _) = filled(3);
    let taken = folder.path().join("counters.snapshot");
    fs::create_dir_all(taken.join("in-the-way")).expect("writable");
    assert!(matches!(snapshot::save(&memory, &taken, Now::at(NOW)), Err(SnapshotError::Io(_))));
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
}

#[test]
fn a_folder_that_is_gone_is_an_error_and_not_a_panic() {
    let (memory, _) = filled(1);
    let nowhere = std::path::Path::new("/proc/nowhere/counters.snapshot");
    assert!(matches!(snapshot::save(&memory, nowhere, Now::at(NOW)), Err(SnapshotError::Io(_))));
}
