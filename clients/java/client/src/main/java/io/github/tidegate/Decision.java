package io.github.tidegate;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The answer to a request: the schema DecisionReply of the API, and how it was found.
 *
 * @param allowed whether the request may go ahead
 * @param noMatch whether no policy applies to it
 * @param policy the policy that speaks for the decision
 * @param limit the most that can be spent at once under it
 * @param remaining what can still be spent
 * @param retryAfter whole seconds to wait, denials only
 * @param retryAfterMs milliseconds to wait, denials only; absent if the request can never be
 *     allowed
 * @param resetMs milliseconds until the whole quota is back
 * @param delayMs milliseconds to hold an allowed request back, leaky buckets only
 * @param degraded how it was found without the server, or by the server without its store: local,
 *     open or closed
 * @param permit the permit that a concurrency limit handed out
 * @param policies every policy that applied
 * @param source who answered
 * @param failure why the server did not
 * @param rateLimitPolicy the response field RateLimit-Policy; absent in a batch
 * @param rateLimit the response field RateLimit; absent in a batch
 */
public record Decision(
    boolean allowed,
    boolean noMatch,
    Optional<String> policy,
    OptionalLong limit,
    OptionalLong remaining,
    OptionalLong retryAfter,
    OptionalLong retryAfterMs,
    OptionalLong resetMs,
    OptionalLong delayMs,
    Optional<String> degraded,
    Optional<String> permit,
    List<PolicyPart> policies,
    Source source,
    Optional<Failure> failure,
    Optional<String> rateLimitPolicy,
    Optional<String> rateLimit) {

  /** Who answered. */
  public enum Source {
    /** The server. */
    SERVER,
    /** A denial of the server that still holds. */
    CACHE,
    /** This process, by {@link Options#onFailure}. */
    FALLBACK;

    /** As events and documents name it. */
    public String word() {
      return name().toLowerCase(java.util.Locale.ROOT);
    }
  }

  /** How long to hold an allowed request back. */
  public Duration delay() {
    return Duration.ofMillis(delayMs.orElse(0));
  }

  /** The enforced policies that denied. */
  public List<String> violated() {
    return policies.stream()
        .filter(part -> part.enforced() && !part.allowed())
        .map(PolicyPart::policy)
        .toList();
  }

  static Decision read(Object value) throws Json.Malformed {
    Json.Members members = Json.Members.of(value);
    List<PolicyPart> parts = new ArrayList<>();
    for (Object part : members.needList("policies")) {
      parts.add(PolicyPart.read(Json.Members.of(part)));
    }
    return new Decision(
        members.needFlag("allowed"),
        members.flag("no_match"),
        members.text("policy"),
        members.number("limit"),
        members.number("remaining"),
        members.number("retry_after"),
        members.number("retry_after_ms"),
        members.number("reset_ms"),
        members.number("delay_ms"),
        members.text("degraded"),
        members.text("permit"),
        List.copyOf(parts),
        Source.SERVER,
        Optional.empty(),
        Optional.empty(),
        Optional.empty());
  }

  /** The same with the fields of its reply. */
  Decision described(Optional<String> policyField, Optional<String> stateField) {
    return new Decision(
        allowed,
        noMatch,
        policy,
        limit,
        remaining,
        retryAfter,
        retryAfterMs,
        resetMs,
        delayMs,
        degraded,
        permit,
        policies,
        source,
        failure,
        policyField,
        stateField);
  }

  /**
   * A denial some time after it was made: every time in it is so much shorter, and the field that
   * states one is left out.
   */
  Decision later(long passedMs) {
    long leftMs = Math.max(1, retryAfterMs.orElse(0) - passedMs);
    return new Decision(
        false,
        noMatch,
        policy,
        limit,
        remaining,
        OptionalLong.of((leftMs + 999) / 1000),
        OptionalLong.of(leftMs),
        resetMs.isEmpty() ? resetMs : OptionalLong.of(Math.max(0, resetMs.getAsLong() - passedMs)),
        delayMs,
        degraded,
        permit,
        policies.stream().map(part -> part.later(passedMs)).toList(),
        Source.CACHE,
        failure,
        rateLimitPolicy,
        Optional.empty());
  }

  /** Whether a concurrency limit denied: any release may end that. */
  boolean endsWithRelease() {
    return policies.stream()
        .anyMatch(part -> part.concurrent() && !part.allowed() && part.enforced());
  }
}
