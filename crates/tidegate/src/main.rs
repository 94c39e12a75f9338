//! The `tidegate` binary: flags, configuration, wiring, exit codes.

fn main() -> anyhow::Result<()> {
    Ok(())
}
