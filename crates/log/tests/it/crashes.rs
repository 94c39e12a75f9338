//! Any operations, any crash: what was acknowledged is there, in order, once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_log::{AppendError, Durability, Log, Settings};

use crate::disk::{Dice, Disk, Faults};
use crate::support::{all, append, open_on, small};

#[derive(Clone, Debug)]
enum Step {
    Append(u64, Durability),
    FailWrite,
    FailSync,
    FailCuts,
    Fill,
    MakeRoom,
    Commit,
    Kill,
    PowerLoss(u64),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let durability = prop_oneof![1 => Just(Durability::Memory), 1 => Just(Durability::Written), 4 => Just(Durability::Fsync)];
    prop_oneof![
        12 => (1..40_u64, durability).prop_map(|(lines, durability)| Step::Append(lines, durability)),
        1 => Just(Step::FailWrite),
        1 => Just(Step::FailSync),
        1 => Just(Step::FailCuts),
        1 => Just(Step::Fill),
        2 => Just(Step::MakeRoom),
        1 => Just(Step::Commit),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerLoss),
        1 => Just(Step::Close),
    ]
}

/// What the log promised.
#[derive(Default)]
struct Promises {
    next_id: u64,
    /// Offsets and lines that survive a power loss, and those that survive a kill.
    fsync: BTreeMap<u64, u64>,
    written: BTreeMap<u64, u64>,
    committed: u64,
}

struct World {
    disk: Disk,
    log: Option<Log>,
    promises: Promises,
}

fn settings() -> Settings {
    // Nothing is synced unless somebody waits for it: that is what a crash is about.
    Settings { sync_gap: std::time::Duration::from_secs(3_600), ..small(Path::new("/log")) }
}

fn opened(disk: &Disk) -> Log {
    open_on(settings(), Arc::new(disk.clone())).0
}

impl World {
    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn append(&mut self, lines: u64, durability: Durability) {
        let first = self.promises.next_id;
        self.promises.next_id += lines;
        match append(self.log(), first..first + lines, durability) {
            Ok(appended) => {
                let Some(offset) = appended.first_offset else { return };
                let these = (offset..).zip(first..first + lines);
                if appended.durability == Durability::Fsync {
                    self.promises.fsync.extend(these.clone());
                }
                self.promises.written.extend(these);
            }
            Err(AppendError::DiskFull | AppendError::Refused(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }

    /// Goes on with what a crash left on the disk.
    fn crash(&mut self, left: Disk) {
        // The old process still writes what it had, to a disk that nobody will read.
        self.log = None;
        self.disk = left;
        self.log = Some(opened(&self.disk));
    }

    fn check(&self, promised: &BTreeMap<u64, u64>) -> Result<(), TestCaseError> {
        let found = all(self.log());
        let by_offset: BTreeMap<u64, u64> = found.iter().copied().collect();
        for (offset, id) in promised {
            prop_assert_eq!(by_offset.get(offset), Some(id), "offset {} was acknowledged", offset);
        }
        let ids: Vec<u64> = found.iter().map(|(_, id)| *id).collect();
        prop_assert!(ids.is_sorted_by(|a, b| a < b), "out of order, or twice: {:?}", ids);
        prop_assert!(self.log().offsets(0).unwrap().end >= self.promises.committed);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let faults = self.disk.faults();
        match step {
            Step::Append(lines, durability) => self.append(*lines, *durability),
            Step::FailWrite => self.disk.fail(Faults { next_write: true, ..faults }),
            Step::FailSync => self.disk.fail(Faults { next_sync: true, ..faults }),
            Step::FailCuts => self.disk.fail(Faults { cuts: true, ..faults }),
            Step::Fill => self.disk.fail(Faults { space: Some(0), ..faults }),
            Step::MakeRoom => self.disk.fail(Faults::default()),
            Step::Commit => {
                let next = self.log().offsets(0).unwrap().end;
                if self.log().commit("group", 0, next).is_ok() {
                    self.promises.committed = next;
                }
            }
            Step::Kill => {
                self.crash(self.disk.after_kill());
                self.check(&self.promises.written)?;
            }
            Step::PowerLoss(seed) => {
                self.crash(self.disk.after_power_loss(&mut Dice(*seed)));
                self.check(&self.promises.fsync)?;
                // The rest may be gone, and what is left is durable now.
                let kept = all(self.log()).into_iter().collect();
                self.promises.fsync = kept;
                self.promises.written = self.promises.fsync.clone();
            }
            Step::Close => {
                self.log = None;
                self.log = Some(opened(&self.disk));
                self.check(&self.promises.written)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn fault_26_power_loss_and_kills_at_any_point(steps in prop::collection::vec(step(), 1..40)) {
        let disk = Disk::default();
        let log = Some(opened(&disk));
        let mut world = World { disk, log, promises: Promises::default() };
        for step in &steps {
            world.step(step)?;
        }
        world.crash(world.disk.after_kill());
        world.check(&world.promises.written)?;
    }
}

/// The lines behind the synced ones stay in the file, and a later sync of it succeeds without effect. An index that
/// counts them must not be believed after the power went.
#[test]
fn fault_27_what_was_synced_before_a_failed_sync_survives_a_restart_and_a_power_loss() {
    let failed = [Step::FailCuts, Step::Append(14, Durability::Fsync), Step::FailSync];
    let restarted = [Step::Append(9, Durability::Fsync), Step::Close, Step::Close];
    for seed in 0..300 {
        let disk = Disk::default();
        let log = Some(opened(&disk));
        let mut world = World { disk, log, promises: Promises::default() };
        for step in failed.iter().chain(&restarted).chain([&Step::PowerLoss(seed)]) {
            world.step(step).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
