//! The files, folders and addresses that the settings name: whether the server could start with them, here.
//!
//! [`super::load`] looks at nothing but the text. `tidegate check` looks at the machine, too, so that what it calls good can
//! start. What may be another user's or another machine's is a warning: a right to write, an address.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;

use rustix::fs::{Access, access};
use tidegate_edge::geo::Database;
use tidegate_settings::mistake::{Found, Mistake};

use super::access_log::LogPlace;
use super::listener::listen_addresses;
use super::{Loaded, Mistakes};

impl Loaded {
    /// Reads the files that settings name and looks at the folders and addresses, as the server would. Warnings about
    /// what may be wrong. Blocks on the disk.
    ///
    /// # Errors
    /// Everything that the server cannot start with.
    pub fn check_files(&self) -> Result<Vec<String>, Mistakes> {
        let mut found = Found::default();
        let mut warnings = self.check_tls(&mut found);
        self.check_acme(&mut found);
        let settings = &self.config.settings;
        if let Some(path) = &settings.edge.country_database
            && let Err(error) = Database::open(path)
        {
            let problem = format!("{path:?} {error}");
            self.refuse("edge.country_database", problem, "a database in MaxMind's format", &mut found);
        }
        if let LogPlace::File(path) = &settings.access_log.to {
            match place_of_file(path) {
                Err(problem) => self.refuse("access_log.to", problem, "a file in a folder", &mut found),
                Ok(place) => warnings.extend(unwritable("access_log.to", place)),
            }
        }
        match place_of_folder(&settings.data_dir) {
            Err(problem) => {
                self.refuse("data_dir", problem, "a folder, or where one can be made", &mut found)
            }
            Ok(place) => warnings.extend(unwritable("data_dir", place)),
        }
        for (path, address) in listen_addresses(&self.config) {
            let bound = UdpSocket::bind((address.ip(), 0));
            if bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable) {
                warnings.push(format!("{path} is {address}, and this machine has no such address"));
            }
        }
        Mistakes::new(self.file_name(), found).map_or(Ok(warnings), Err)
    }

    /// Notes that the server cannot start with this setting.
    pub(super) fn refuse(&self, path: &str, problem: String, accepted: &str, found: &mut Found) {
        let (origin, path) = (self.origin(path).clone(), path.to_owned());
        found.push(Mistake { origin, path, problem, accepted: accepted.to_owned() });
    }
}

/// What has to be writable so that this file can be written: itself, or its folder.
fn place_of_file(path: &Path) -> Result<&Path, String> {
    if path.is_dir() {
        return Err(format!("is {path:?}, which is a folder"));
    }
    if path.exists() {
        return Ok(path);
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() { Ok(folder) } else { Err(format!("is {path:?}, and there is no folder {folder:?}")) }
}

/// What has to be writable so that this folder can be used: itself, or the nearest one above it that is there.
fn place_of_folder(path: &Path) -> Result<&Path, String> {
    let mut places =
        path.ancestors().map(|place| if place.as_os_str().is_empty() { Path::new(".") } else { place });
    // What cannot be looked at is no folder either.
    let there = places.find(|place| fs::symlink_metadata(place).is_ok());
    match there {
        Some(place) if place.is_dir() => Ok(place),
        Some(place) => Err(format!("is {path:?}, and {place:?} is no folder")),
        None => Err(format!("is {path:?}, which is nowhere")),
    }
}

fn unwritable(setting: &str, place: &Path) -> Option<String> {
    let denied = access(place, Access::WRITE_OK).is_err();
    denied.then(|| format!("{setting}: this user may not write to {place:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_nearest_one_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (there, file) = (folder.path(), folder.path().join("file"));
        fs::write(&file, "").unwrap();
        assert_eq!(place_of_file(&file).unwrap(), file);
        assert_eq!(place_of_file(&there.join("new")).unwrap(), there);
        assert_eq!(place_of_file(Path::new("new")).unwrap(), Path::new("."));
        assert!(place_of_file(there).unwrap_err().ends_with("which is a folder"));
        assert!(place_of_file(&there.join("a/b")).unwrap_err().contains("there is no folder"));
        assert_eq!(place_of_folder(&there.join("a/b")).unwrap(), there);
        assert_eq!(place_of_folder(Path::new("a/b")).unwrap(), Path::new("."));
        for wrong in [&file, &file.join("a")] {
            assert!(place_of_folder(wrong).unwrap_err().ends_with("is no folder"), "{wrong:?}");
        }
    }
}
