//! Where a request's keys are put together: a buffer that each thread keeps from one request to the next.

use std::cell::Cell;
use std::mem::take;
use std::ops::{Deref, DerefMut};

/// Most bytes of a buffer that is kept.
const KEPT_BYTES: usize = 4 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The keys of one request, one after another.
#[derive(Debug)]
pub(super) struct Keys(Vec<u8>);

impl Keys {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(SPARE.take())
    }
}

impl Deref for Keys {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Keys {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let mut bytes = take(&mut self.0);
        bytes.clear();
        if bytes.capacity() <= KEPT_BYTES {
            // A thread that ends keeps nothing.
            let _kept = SPARE.try_with(|spare| spare.set(bytes));
        }
    }
}
