//! The checks and chores that the Makefile calls: `cargo xtask <name>`.

fn main() -> anyhow::Result<()> {
    Ok(())
}
