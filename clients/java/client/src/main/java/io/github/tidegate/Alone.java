package io.github.tidegate;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/** Answers without the server, as {@link Options#onFailure} says. */
final class Alone {
  /** What a product such as 100 x 0.29 may be short of the whole number that it stands for. */
  private static final double ROUNDING_ERROR = 1e-9;

  private final Options.OnFailure mode;
  private final Options.Fallback limit;
  private final long units;
  private final long unitNanos;

  /**
   * When each key's bucket is full again: the arithmetic of a token bucket (GCRA). The first is
   * unseen for longest.
   */
  private final Map<List<String>, Long> full = new LinkedHashMap<>(16, 0.75f, true);

  private long evicted;

  Alone(Options options) {
    mode = options.onFailure;
    limit = options.fallback;
    if (limit == null) {
      units = 0;
      unitNanos = 0;
    } else {
      units = Math.max(1, (long) Math.floor(limit.limit() * limit.share() + ROUNDING_ERROR));
      unitNanos = Math.max(1, limit.window().toNanos() / units);
    }
  }

  /** The decision that stands in for the server's. */
  Decision answer(Request request, Failure failure, long now) {
    OptionalLong none = OptionalLong.empty();
    return switch (mode) {
      case OPEN -> decision(true, none, none, none, none, none, "open", failure);
      case CLOSED ->
          decision(
              false,
              none,
              none,
              OptionalLong.of(1),
              OptionalLong.of(1000),
              none,
              "closed",
              failure);
      case LOCAL -> count(request, failure, now);
    };
  }

  private synchronized Decision count(Request request, Failure failure, long now) {
    List<String> key =
        limit.key().stream().map(name -> request.attributes().getOrDefault(name, "")).toList();
    Long known = full.get(key);
    long debt = known == null ? 0 : Math.max(0, known - now);
    long whole = unitNanos * units;
    OptionalLong seconds = OptionalLong.empty();
    OptionalLong millis = OptionalLong.empty();
    boolean allowed = false;
    if (request.cost() > units || request.cost() < 0) {
      seconds = OptionalLong.of((limit.window().toMillis() + 999) / 1000);
    } else {
      long wait = debt + unitNanos * request.cost() - whole;
      allowed = wait <= 0;
      if (allowed) {
        debt += unitNanos * request.cost();
      } else {
        long waitMs = (wait + 999_999) / 1_000_000;
        millis = OptionalLong.of(waitMs);
        seconds = OptionalLong.of((waitMs + 999) / 1000);
      }
    }
    if (allowed && request.spends()) {
      keep(key, now + debt);
    }
    return decision(
        allowed,
        OptionalLong.of(units),
        OptionalLong.of((whole - debt) / unitNanos),
        seconds,
        millis,
        OptionalLong.of((debt + 999_999) / 1_000_000),
        "local",
        failure);
  }

  private void keep(List<String> key, long when) {
    if (full.put(key, when) == null && full.size() > limit.keys()) {
      evicted++;
      full.remove(full.keySet().iterator().next());
    }
  }

  private static Decision decision(
      boolean allowed,
      OptionalLong units,
      OptionalLong remaining,
      OptionalLong retryAfter,
      OptionalLong retryAfterMs,
      OptionalLong resetMs,
      String degraded,
      Failure failure) {
    return new Decision(
        allowed,
        false,
        Optional.empty(),
        units,
        remaining,
        retryAfter,
        retryAfterMs,
        resetMs,
        OptionalLong.empty(),
        Optional.of(degraded),
        Optional.empty(),
        List.of(),
        Decision.Source.FALLBACK,
        Optional.of(failure),
        Optional.empty(),
        Optional.empty());
  }

  synchronized long evicted() {
    return evicted;
  }
}
