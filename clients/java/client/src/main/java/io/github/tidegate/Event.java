package io.github.tidegate;

import java.time.Duration;
import java.util.Optional;

/**
 * One call's result, as {@link Options#onEvent} is told. It has no attribute's value: no client key
 * becomes a label.
 *
 * @param operation allow, batch, refund, acquire, renew, release or explain
 * @param outcome allowed or denied of a decision, done or failed of another call
 * @param source who answered
 * @param failure why the server did not
 * @param policy the policy that speaks for the decision
 * @param duration how long the caller waited
 * @param count 1: a batch is told decision by decision
 */
public record Event(
    String operation,
    String outcome,
    Optional<Decision.Source> source,
    Optional<Failure> failure,
    Optional<String> policy,
    Duration duration,
    int count) {}
