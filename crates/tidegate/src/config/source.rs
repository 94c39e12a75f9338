//! Where a process gets its configuration: the file's path, the environment, the flags.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::document::MAX_FILE_BYTES;
use super::{Environment, File, Flags, Loaded, Mistakes, load};

/// Everything that a configuration is made of, so that it can be made again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// The environment at start: it does not change while a process runs.
    pub environment: Environment,
    /// The flags at start.
    pub flags: Flags,
}

impl Source {
    /// Reads the file and makes the configuration. Blocks on the disk.
    ///
    /// # Errors
    /// Everything that is wrong; a file that cannot be read is one mistake.
    pub fn load(&self) -> Result<Loaded, Mistakes> {
        let Some(path) = &self.path else { return load(None, &self.environment, &self.flags) };
        let name = path.display().to_string();
        let bytes = read(path).map_err(|error| Mistakes::unreadable(&name, error.to_string()))?;
        load(Some(File { name: &name, bytes: &bytes }), &self.environment, &self.flags)
    }
}

/// At most one byte more than is accepted, so that a huge file costs no memory.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
