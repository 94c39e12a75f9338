//! The version and build of this program.

use std::fmt;

use crate::{Families, Family};

/// The build that runs, as `tidegate_build_info`.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo {
    /// The release.
    pub version: &'static str,
    /// The commit it was built from; "development" or "unknown" where nobody can say.
    pub commit: &'static str,
}

impl Family for BuildInfo {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let labels = [("version", self.version), ("commit", self.commit)];
        families.info("tidegate_build", "The build that runs", &labels)
    }
}
