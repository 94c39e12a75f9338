//! Batches: the part that stores share which decide many requests in one script or function.

mod failure;
mod lane;
mod operation;

pub(crate) use failure::Failure;
pub(crate) use lane::{Executor, Lane, open_all};
pub(crate) use operation::{Kind, Operation, Reply, WireLimit};
