//! Tables and functions of the counters, and their version.

use tidegate_postgres::Schema;

use super::Durability;

/// Version of the schema. A change of its text raises it; a test knows when that was forgotten.
const VERSION: i32 = 3;
const TEXT: &str = concat!(
    include_str!("tables.sql"),
    include_str!("decide_begin.sql"),
    include_str!("decide_bucket.sql"),
    include_str!("decide_window.sql"),
    include_str!("decide_log.sql"),
    include_str!("decide_counter.sql"),
    include_str!("decide_permits.sql"),
    include_str!("decide_end.sql"),
);

/// The schema of a store that keeps its rows so.
pub(super) fn schema(durability: Durability) -> Schema {
    let sql = if durability == Durability::Unlogged {
        TEXT.replace("CREATE TABLE", "CREATE UNLOGGED TABLE").into()
    } else {
        TEXT.into()
    };
    Schema { name: "tidegate", version: VERSION, sql }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a, 64 bits.
    fn digest(text: &str) -> u64 {
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    #[test]
    fn a_change_of_the_schema_raises_its_version() {
        assert_eq!(
            (VERSION, digest(TEXT)),
            (3, 0x1498_082f_3e85_ec1f),
            "databases keep the functions that they have until the version is raised: raise VERSION, then \
             put both numbers here"
        );
    }
}
