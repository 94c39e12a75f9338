//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod measurement;
