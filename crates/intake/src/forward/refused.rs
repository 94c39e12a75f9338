//! Lines that the other side of a forward will never take: in a file of their own, for a person to look at or to send
//! elsewhere.
//!
//! `<data-dir>/intake/refused/<forward>.jsonl` has them as the log has them. A file that has 4 MiB gets the name
//! `<forward>.jsonl.1`, in place of the one before it, so a forward's take 8 MiB. They are not synced: the lines are in the
//! log, too, until retention takes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

const FOLDER: &str = "refused";
/// Bytes at which a file is put away.
const MAX_BYTES: u64 = 4 << 20;
/// One line at a time: two partitions that both find the file full would put the new one in place of the old.
static ADDING: Mutex<()> = Mutex::new(());

/// The file of the forward of this name, beside the partitions of the log in `folder`.
pub(super) fn file(folder: &Path, forward: &str) -> PathBuf {
    folder.join(FOLDER).join(format!("{forward}.jsonl"))
}

/// Adds a line with its line feed. Half a line, which a full disk may have left, is ended first, so that it spoils no other.
pub(super) fn add(file: &Path, line: &[u8]) -> io::Result<()> {
    // It guards no data, so a panic while it is held leaves nothing half done.
    let _adding = ADDING.lock();
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let opened = || OpenOptions::new().create(true).read(true).append(true).open(file);
    let mut open = opened()?;
    if open.metadata()?.len() + line.len() as u64 > MAX_BYTES {
        fs::rename(file, file.with_extension("jsonl.1"))?;
        open = opened()?;
    }
    if let Some(last) = open.metadata()?.len().checked_sub(1) {
        let mut byte = [0];
        open.read_exact_at(&mut byte, last)?;
        if byte != *b"\n" {
            open.write_all(b"\n")?;
        }
    }
    open.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_and_no_more_than_stated() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), "a.b");
        let line = [&[b'x'; 99_999][..], b"\n"].concat();
        for number in 0..100_u8 {
            add(&file, &[&[number], &line[1..]].concat()).unwrap();
        }
        let [newest, older] =
            [file.clone(), file.with_file_name("a.b.jsonl.1")].map(|path| fs::read(path).unwrap());
        assert!(newest.len() as u64 <= MAX_BYTES && older.len() as u64 <= MAX_BYTES);
        assert_eq!(newest[newest.len() - line.len()], 99);
        assert_eq!(older.len() % line.len(), 0);
        assert!((newest.len() + older.len()) as u64 > MAX_BYTES);
    }

    #[test]
    fn half_a_line_of_a_full_disk_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), "a");
        add(&file, b"one\n").unwrap();
        OpenOptions::new().append(true).open(&file).unwrap().write_all(b"tw").unwrap();
        for line in [b"three\n", b"fours\n"] {
            add(&file, line).unwrap();
        }
        assert_eq!(fs::read(&file).unwrap(), b"one\ntw\nthree\nfours\n");
    }

    #[test]
    fn partitions_that_find_it_full_at_once_put_it_away_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let file = file(folder.path(), "a");
            let full = [&vec![b'x'; MAX_BYTES as usize - 1][..], b"\n"].concat();
            add(&file, &full).unwrap();
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        add(&file, b"line\n").unwrap();
                    });
                }
            });
            assert_eq!(fs::read(&file).unwrap(), b"line\nline\nline\nline\n");
            assert_eq!(fs::metadata(file.with_extension("jsonl.1")).unwrap().len(), MAX_BYTES);
        }
    }
}
