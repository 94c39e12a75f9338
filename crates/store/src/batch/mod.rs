//! What the stores share that decide batches of requests by a script or function of their own.

mod failure;
mod lane;
mod operation;

pub(crate) use failure::Failure;
pub(crate) use lane::{Executor, Lane, open_all};
pub(crate) use operation::{Kind, Operation, Reply, WireLimit};
