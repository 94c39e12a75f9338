//! Where lines of the access log end: a file that is rotated, or standard output.
//!
//! The file has whole lines only. When a write fails part of the way, because the disk is full, the file is cut back to
//! its last whole line, and the next batch is tried as if nothing had been.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Destination;

/// An open log.
#[derive(Debug)]
pub(super) struct LogFile {
    sink: LogSink,
    /// The last write failed.
    is_failing: bool,
}

#[derive(Debug)]
enum LogSink {
    /// A descriptor of its own: the process's handle may be locked for as long as it runs.
    Stdout(File),
    File(Rotated),
}

/// A file, and those that it was renamed to.
#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    file: File,
    length: u64,
    /// A pipe or a device is never renamed.
    is_regular: bool,
    max_bytes: u64,
    keep: u32,
}

/// What became of a batch's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteOutcome {
    pub(super) written: u64,
    pub(super) failed: u64,
}

impl LogFile {
    pub(super) fn open(destination: Destination) -> io::Result<Self> {
        let sink = match destination {
            Destination::Stdout => LogSink::Stdout(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            Destination::File { path, max_bytes, keep } => {
                let (file, length, is_regular) = open(&path)?;
                LogSink::File(Rotated { path, file, length, is_regular, max_bytes, keep })
            }
        };
        Ok(Self { sink, is_failing: false })
    }

    /// Opens the file again. If that fails, the old one is written to.
    pub(super) fn reopen(&mut self) {
        let LogSink::File(rotated) = &mut self.sink else { return };
        match open(&rotated.path) {
            Ok(opened) => (rotated.file, rotated.length, rotated.is_regular) = opened,
            Err(error) => {
                let file = rotated.path.display();
                tracing::error!(%file, %error, "the access log cannot be opened again: the old file is written to");
            }
        }
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, mut batch: &[u8]) -> WriteOutcome {
        let mut outcome = WriteOutcome::default();
        while !batch.is_empty() {
            let written = match &mut self.sink {
                LogSink::Stdout(out) => out.write_all(batch).map(|()| batch.len()),
                LogSink::File(rotated) => rotated.write_some(batch),
            };
            match written {
                Ok(length) => {
                    outcome.written += lines(&batch[..length]);
                    batch = &batch[length..];
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the access log is written again");
                    }
                }
                Err(error) => {
                    outcome.failed += lines(batch);
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::error!(%error, "the access log cannot be written: lines are dropped and counted");
                    }
                    return outcome;
                }
            }
        }
        outcome
    }
}

impl Rotated {
    /// Writes as many whole lines as the file has room for, at least one; how many bytes they are.
    fn write_some(&mut self, batch: &[u8]) -> io::Result<usize> {
        let mut fits = self.fits(batch);
        if fits == 0 && self.length > 0 {
            self.rotate()?;
            fits = self.fits(batch);
        }
        // A line that no file has room for has one for itself.
        let length = if fits == 0 { first_line(batch) } else { fits };
        if let Err(error) = self.file.write_all(&batch[..length]) {
            // If this fails as well, half a line is left in the file.
            drop(self.file.set_len(self.length));
            return Err(error);
        }
        self.length += length as u64;
        Ok(length)
    }

    /// How many bytes of whole lines the file has room for.
    fn fits(&self, batch: &[u8]) -> usize {
        if !self.is_regular {
            return batch.len();
        }
        let room = self.max_bytes.saturating_sub(self.length);
        whole_lines(batch, usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Renames the file, those before it, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        // It is not there if the last rotation could not begin a new one.
        if self.path.try_exists()? {
            self.rename()?;
        }
        (self.file, self.length, self.is_regular) = open(&self.path)?;
        Ok(())
    }

    fn rename(&self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            let (from, to) = (self.numbered(number), self.numbered(number + 1));
            if let Err(error) = fs::rename(from, to)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Opens a log to append to; its length, and whether it is a regular file. It says who asked for what: not for others.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    let about = file.metadata()?;
    Ok((file, about.len(), about.is_file()))
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The length of the whole lines that `room` bytes hold.
fn whole_lines(batch: &[u8], room: usize) -> usize {
    let within = &batch[..batch.len().min(room)];
    within.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

fn first_line(batch: &[u8]) -> usize {
    batch.iter().position(|byte| *byte == b'\n').map_or(batch.len(), |end| end + 1)
}
