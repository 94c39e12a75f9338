//! Every limit against a naive exact oracle, and the promises that its verdicts make.
//!
//! ```text
//!   oracle     what a limit means, written from its definition over the list of all admitted
//!   exactness  each decision, remaining, wait and reset equals the oracle's; the stated bounds
//!   spending   peeks change nothing, refunds restore and never give more than was spent
//!   changes    limits that change while running
//!   clocks     jumps, a TAT from the future, the ends of the integers
//!   permits    concurrency against a list of permits
//!   calendar   days and months across daylight saving, and the bundled zones
//! ```

mod calendar;
mod changes;
mod clocks;
mod exactness;
mod oracle;
mod permits;
mod spending;
