//! The script that decides a batch, put together of its parts: what all algorithms use, each algorithm, the
//! batch.

/// The text.
pub(super) const SCRIPT: &str = concat!(
    include_str!("head.lua"),
    include_str!("bucket.lua"),
    include_str!("window.lua"),
    include_str!("log.lua"),
    include_str!("counter.lua"),
    include_str!("permits.lua"),
    include_str!("batch.lua"),
);
