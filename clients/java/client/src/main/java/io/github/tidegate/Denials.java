package io.github.tidegate;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/**
 * Who was denied, until the wait is over: who is denied costs no round trip until then.
 *
 * <p>It holds a bounded number; then the oldest makes room. Of each set of attributes it keeps one
 * denial, which holds for its cost and for higher ones. A refund forgets the denial of its
 * attributes, and no denial is kept that was asked for before one: it may be older.
 */
final class Denials {
  /** Longer requests always go to the server. */
  private static final int MAX_KEY_CHARACTERS = 1024;

  /** A denial since when, and until when it is kept, which may be before its wait is over. */
  private record Denial(
      long cost, Optional<Limits> limits, Decision decision, long since, long until) {}

  private final int entries;
  private final long longestNanos;
  private final Map<Map<String, String>, Denial> kept = new LinkedHashMap<>();
  private long evicted;

  /** Counts refunds that are through. */
  private long refunds;

  Denials(int entries, long longestNanos) {
    this.entries = entries;
    this.longestNanos = longestNanos;
  }

  /** The denial that still holds for a request, with what is left of its wait. */
  Optional<Decision> find(Request request, long now) {
    if (entries == 0 || !request.spends()) {
      return Optional.empty();
    }
    Denial denial;
    synchronized (this) {
      denial = kept.get(request.attributes());
      if (denial == null) {
        return Optional.empty();
      }
      if (denial.until - now <= 0) {
        kept.remove(request.attributes());
        return Optional.empty();
      }
    }
    if (request.cost() < denial.cost || !request.limits().equals(denial.limits)) {
      return Optional.empty();
    }
    return Optional.of(denial.decision.later((now - denial.since) / 1_000_000));
  }

  /** The time of a question, for {@link #remember}. */
  synchronized long asked() {
    return refunds;
  }

  /**
   * Keeps a denial of the server. One without a wait, by a server without its store, or by a
   * concurrency limit (any release ends it) is not kept.
   */
  void remember(Request request, Decision decision, long asked, long now) {
    if (entries == 0
        || !request.spends()
        || decision.allowed()
        || decision.retryAfterMs().isEmpty()
        || decision.degraded().isPresent()
        || decision.endsWithRelease()) {
      return;
    }
    int characters = 0;
    for (Map.Entry<String, String> attribute : request.attributes().entrySet()) {
      characters += attribute.getKey().length() + attribute.getValue().length();
    }
    if (characters > MAX_KEY_CHARACTERS) {
      return;
    }
    long wait = Math.min(decision.retryAfterMs().getAsLong(), longestNanos / 1_000_000) * 1_000_000;
    synchronized (this) {
      if (refunds != asked) {
        return;
      }
      if (kept.remove(request.attributes()) == null && kept.size() >= entries) {
        evicted++;
        kept.remove(kept.keySet().iterator().next());
      }
      kept.put(
          request.attributes(),
          new Denial(request.cost(), request.limits(), decision, now, now + wait));
    }
  }

  synchronized void forget(Map<String, String> attributes) {
    refunds++;
    kept.remove(attributes);
  }

  synchronized long evicted() {
    return evicted;
  }
}
