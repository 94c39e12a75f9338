//! Where counters live: the store contract and the stores that keep it.
