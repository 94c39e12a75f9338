//! One file per subcommand: flags in, exit code out.

pub(crate) mod load;
