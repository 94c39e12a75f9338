//! Every seed of every target, in the ordinary build.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_fuzz::TARGETS;

/// The targets that are in builds with the feature `whole` only.
const OF_THE_WHOLE: [&str; 2] = ["config_file", "log_folder"];

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

#[test]
fn every_target_takes_its_seeds() {
    for (name, run) in TARGETS {
        let files = fs::read_dir(seeds().join(name)).unwrap_or_else(|_| panic!("seeds/{name}/ is missing"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            // Shown when the target panics.
            println!("{}", path.display());
            run(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "seeds/{name}/ needs a few small valid inputs");
    }
}

#[test]
fn every_folder_of_seeds_has_its_target() {
    for folder in fs::read_dir(seeds()).unwrap() {
        let name = folder.unwrap().file_name();
        let is_left_out = cfg!(not(feature = "whole")) && OF_THE_WHOLE.iter().any(|target| name == *target);
        let has_target = TARGETS.iter().any(|(target, _)| name == *target);
        assert!(has_target || is_left_out, "seeds/{} has no target", name.display());
    }
}
