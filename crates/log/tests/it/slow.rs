//! A disk that holds somebody up: a reader that waits for it holds up nobody else, and a sync that does fills the queue up to
//! its bound and no further.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_log::{
    AppendError, Appended, Durability, Entry, Fact, Files, Growing, Log, NameDigest, Readable, RealFiles,
    Settings,
};
use tokio::time::timeout;

use crate::support::{all, append, lines, now, open_on, small, until};

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where calls wait while it is closed.
#[derive(Default)]
struct Gate {
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

/// A gate that is closed; dropping this opens it, also when the test has failed.
struct Closed<'a>(&'a Gate);

impl Gate {
    fn close(&self) -> Closed<'_> {
        self.state.lock().unwrap().0 = true;
        Closed(self)
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        let mut state = self.changed.wait_while(state, |(is_closed, _)| *is_closed).unwrap();
        state.1 -= 1;
    }

    fn until_somebody_waits(&self) {
        until("somebody waits", || self.state.lock().unwrap().1 > 0);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().0 = false;
        self.0.changed.notify_all();
    }
}

/// The operating system's files, whose reads and syncs can be held up.
#[derive(Default)]
struct Stalling {
    reads: Arc<Gate>,
    syncs: Arc<Gate>,
}

impl Files for Stalling {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        Ok(Box::new(Written { file: RealFiles.create(path)?, syncs: Arc::clone(&self.syncs) }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        Ok(Box::new(Read { file: RealFiles.open(path)?, reads: Arc::clone(&self.reads) }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.reopen(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealFiles.lock(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        RealFiles.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealFiles.sync_folder(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }
}

struct Written {
    file: Box<dyn Growing>,
    syncs: Arc<Gate>,
}

impl Growing for Written {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.write(parts)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs.pass();
        self.file.sync()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.cut(bytes)
    }
}

struct Read {
    file: Box<dyn Readable>,
    reads: Arc<Gate>,
}

impl Readable for Read {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.reads.pass();
        self.file.read_at(into, at)
    }
}

fn settings(folder: &Path) -> Settings {
    Settings { segment_bytes: 1 << 20, queue_bytes: 64 << 10, ..small(folder) }
}

fn in_time(answer: impl Future<Output = Result<Appended, AppendError>>) -> Result<Appended, AppendError> {
    now(async { timeout(PATIENCE, answer).await.expect("there is an answer") })
}

fn numbered(count: u64) -> Vec<(u64, u64)> {
    (0..count).map(|id| (id, id)).collect()
}

#[test]
fn a_reader_that_the_disk_holds_up_holds_up_no_writer() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(Stalling::default()));
    let (log, _) = open_on(settings(folder.path()), Arc::clone(&files) as Arc<dyn Files>);
    append(&log, 0..10, Durability::Fsync).unwrap();
    thread::scope(|scope| {
        let closed = files.reads.close();
        let reader = scope.spawn(|| all(&log));
        files.reads.until_somebody_waits();
        for id in 10..60 {
            let appended = in_time(log.append(0, lines([id]), Durability::Fsync)).unwrap();
            assert_eq!(appended.first_offset, Some(id));
        }
        assert!(!reader.is_finished());
        drop(closed);
        assert!(reader.join().unwrap().starts_with(&numbered(10)));
    });
    assert_eq!(all(&log), numbered(60));
}

/// Appends 50 lines at a time until the log refuses; the answers to come, and the last one.
fn until_refused(
    log: &Log,
    mut next: u64,
) -> (Vec<impl Future<Output = Result<Appended, AppendError>> + use<>>, u64) {
    let refused = || log.statistics().partitions[0].refused_full;
    let mut answers = Vec::new();
    while refused() == 0 {
        answers.push(log.append(0, lines(next..next + 50), Durability::Fsync));
        next += 50;
    }
    (answers, next - 50)
}

#[test]
fn fault_30_a_disk_that_syncs_nothing_fills_the_queue_to_its_bound_and_readers_go_on() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(Stalling::default()));
    let (log, _) = open_on(settings(folder.path()), Arc::clone(&files) as Arc<dyn Files>);
    append(&log, 0..10, Durability::Fsync).unwrap();
    let closed = files.syncs.close();
    let (mut answers, next) = until_refused(&log, 10);
    files.syncs.until_somebody_waits();
    assert!(matches!(in_time(answers.pop().unwrap()), Err(AppendError::Full { .. })));
    let statistics = &log.statistics().partitions[0];
    let (queued, limit) = (statistics.queue_bytes, statistics.queue_limit_bytes);
    assert!((limit / 4..=limit).contains(&queued), "{queued} of {limit} bytes");
    assert_eq!(all(&log), numbered(10), "readers go on, and see what is acknowledged");
    drop(closed);
    for answer in answers {
        in_time(answer).unwrap();
    }
    assert_eq!(all(&log), numbered(next), "what was taken is kept, and what was refused is not");
    append(&log, [next], Durability::Fsync).unwrap();
}

#[test]
fn one_client_has_room_for_256_large_batches_at_once() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(Stalling::default()));
    let settings = Settings { compress: false, ..Settings::new(folder.path()) };
    let (log, _) = open_on(settings, Arc::clone(&files) as Arc<dyn Files>);
    let closed = files.syncs.close();
    // 1,000 lines of 128 bytes each.
    let mut large = lines(0..1_000);
    let pad =
        |fact: &Fact| format!("{{\"name\":\"cpu.usage\",\"ms\":1,\"id\":1,\"pad\":\"{:84}\"}}\n", fact.ms);
    large.bytes = large.facts.iter().map(pad).collect::<String>().into();
    large.facts.iter_mut().for_each(|fact| (fact.bytes, fact.name) = (128, NameDigest::of("cpu.usage")));
    assert_eq!(large.bytes.len(), 128_000);
    let answers: Vec<_> = (0..256).map(|_| log.append(0, large.clone(), Durability::Fsync)).collect();
    drop(closed);
    for answer in answers {
        in_time(answer).unwrap();
    }
}
