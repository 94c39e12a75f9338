//! The conformance suite: what every store must do, as functions over [`Counters`].
//!
//! ```text
//!   suite.rs          one case per promise of the contract
//!   differential.rs   random operations, compared with the pure functions over a map
//!   memory.rs         both, on the memory store
//!   redis.rs, valkey.rs, postgres.rs   the cases, on real servers
//! ```
//!
//! A store joins by giving [`every_case`] a macro that makes tests of the names. Cases use keys of
//! their own, so that one store can serve them all.

/// Hands the names of all cases of `suite` to a macro.
macro_rules! every_case {
    ($with:ident) => {
        $with! {
            admits_the_quota_and_again_after_the_promised_wait
            fault_16_all_or_nothing
            a_denial_shows_what_remains_without_it
            shadow_is_charged_and_never_denies
            a_peek_spends_nothing
            a_cost_above_the_quota_is_never_admissible
            a_quota_of_zero_denies_everything
            a_refund_restores
            a_reset_key_starts_anew_and_no_other
            permits_are_held_renewed_released_and_lapse
            charges_of_one_key_are_one_spend
            a_request_without_limits_is_allowed
            a_changed_limit_keeps_what_was_used
            fault_08_a_clock_that_jumps_back_neither_locks_out_nor_refills
            fault_13_keys_are_opaque_bytes
        }
    };
}

mod differential;
mod memory;
mod postgres;
mod redis;
mod suite;
mod valkey;

/// Runs a case to its end.
pub(crate) fn block_on<F: Future>(case: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers").block_on(case)
}
