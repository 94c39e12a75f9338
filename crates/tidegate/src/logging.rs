//! Log lines on standard error: one event, one line.

use tracing_subscriber::filter::LevelFilter;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging. A second call changes nothing.
pub fn start(settings: &Log) {
    let level = match settings.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(terminal).with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Json => lines.json().try_init(),
        LogFormat::Text => lines.try_init(),
    };
    // Only a second call fails, and then there is a log already.
    drop(started);
}
