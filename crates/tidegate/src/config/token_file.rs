//! The operator's token in a file, for containers and packages: the first start makes it, so that every installation
//! has a token of its own.
//!
//! The file is read where the configuration has no `admin.token`. Only `serve` makes it: whole under a name of
//! its own, and then linked to its name, which fails if there is one. So of two servers that start at once both
//! have the same token, and one that is killed leaves no half of one behind.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of chance in a token that is made here.
const BYTES: usize = 24;
/// Longest file that is read: longer than any token.
const MOST: u64 = 8 << 10;

/// The token in the file; none if there is no file. A file that is named and empty is a mistake, since it was to hold
/// a token.
///
/// # Errors
/// When it cannot be read, is no text, or is empty.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    match text.trim() {
        "" => Err(io::Error::new(ErrorKind::InvalidData, "there is no token in it")),
        token => Ok(Some(token.to_owned())),
    }
}

/// Makes the file (mode 0600, its folder 0700) with a token of chance, unless it is there. Whether it did.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make(path: &Path) -> io::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A name of chance: in containers all processes have the same number.
    let unfinished = path.with_extension(format!("new-{}", chance()?));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let made = writeln!(file, "{}", chance()?).and_then(|()| file.sync_all());
    let linked = made.and_then(|()| fs::hard_link(&unfinished, path));
    fs::remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        // Somebody keeps the token from now on, so a loss of power must not bring another one.
        linked => linked.and_then(|()| File::open(folder)?.sync_all()).map(|()| true),
    }
}

fn chance() -> io::Result<String> {
    let mut bytes = [0_u8; BYTES];
    // The kernel gives so few bytes whole.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/admin.token");
        assert_eq!(read(&path).unwrap(), None);
        assert!(make(&path).unwrap());
        let token = read(&path).unwrap().unwrap();
        assert!(token.len() == 2 * BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
        assert!(!make(&path).unwrap());
        assert_eq!(read(&path).unwrap(), Some(token.clone()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, " \n").unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        let other = folder.path().join("other");
        make(&other).unwrap();
        assert_ne!(read(&other).unwrap(), Some(token));
    }
}
