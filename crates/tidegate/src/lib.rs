//! The parts of the `tidegate` binary, as a library so that tests and fuzz targets reach them.

pub mod commands;
pub mod config;
pub mod doctor;
pub mod logging;
pub mod serve;
pub mod service_manager;
pub mod warnings;
