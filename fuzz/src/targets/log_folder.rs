//! Whatever the bytes of segments and index, a log opens, gives back the whole lines before the damage, and
//! takes new lines at an offset that nothing has.
//!
//! The input's first byte is a number of whole lines; the rest is cut into three: what follows those lines
//! in a plain segment, a compressed segment, and the index of the plain one.

use std::borrow::Cow;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tidegate_log::{
    Clock, Describe, Description, Durability, Fact, Lines, Log, NameDigest, RealFiles, Settings, verify,
};
use tidegate_net::clock::monotonic;

/// A line is a digit, again and again.
struct DigitLines;

impl Describe for DigitLines {
    fn describe<'line>(&self, line: &'line [u8]) -> Option<Description<'line>> {
        let whole = line.len() == 8 && line.iter().all(u8::is_ascii_digit);
        whole.then_some(Description { name: Cow::Borrowed("n"), ms: 0 })
    }
}

fn line(number: u64) -> String {
    format!("{number:08}\n")
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("tidegate-fuzz-log-{}", std::process::id()))
}

fn open() -> Log {
    let settings = Settings { compress: false, flush_gap: Duration::ZERO, ..Settings::new(folder()) };
    let clock = Clock { monotonic, wall_ms: || 0 };
    Log::open(settings, Arc::new(DigitLines), Arc::new(RealFiles), clock)
        .expect("damage never stops a start")
        .0
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

pub(super) fn run(data: &[u8]) {
    let Some((lines, data)) = data.split_first() else { return };
    let lines = u64::from(*lines % 8);
    let (tail, rest) = data.split_at(data.len() / 3);
    let (packed, index) = rest.split_at(rest.len() / 2);
    drop(fs::remove_dir_all(folder()));
    let partition = folder().join("0");
    fs::create_dir_all(&partition).expect("a folder in the temporary one");
    let plain = [(0..lines).map(line).collect::<String>().as_bytes(), tail].concat();
    fs::write(partition.join("00000000000000000000.jsonl"), plain).expect("written");
    fs::write(partition.join("00000000000000001000.jsonl.zst"), packed).expect("written");
    fs::write(partition.join("00000000000000000000.index"), index).expect("written");

    verify(&folder(), &DigitLines, &RealFiles).expect("damage is no error");
    let log = open();
    if lines > 0 {
        let read = log.read(0, 0, lines, 1 << 20).expect("the oldest lines");
        assert_eq!(read.lines, (0..lines).map(line).collect::<String>(), "before the damage");
    }
    let next = log.offsets(0).expect("the partition").end;
    let fact = Fact { name: NameDigest::of("n"), bytes: 9, ms: 0 };
    let new = Lines { bytes: line(7).into(), facts: vec![fact], client: 0 };
    let appended = wait(log.append(0, new, Durability::Written)).expect("the disk takes lines");
    assert_eq!(appended.first_offset, Some(next));
    drop(log);
    let read = open().read(0, next, 1, 100).expect("the new line");
    assert_eq!((read.count, read.lines), (1, line(7).into()));
    drop(fs::remove_dir_all(folder()));
}
