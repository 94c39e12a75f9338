//! Files that a user names: read with a bound, refused with a sentence.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest file that is read, in bytes: a report of 500 long steps has about 20 MB.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a text file of at most 64 MiB; the error names the file.
pub(super) fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", path.display())))
}

/// Reads a file of at most 64 MiB; the error names the file.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).map_err(named)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(named)?;
    if read as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{}: larger than {MAX_BYTES} bytes", path.display()),
        ));
    }
    Ok(bytes)
}
