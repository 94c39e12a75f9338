package io.github.tidegate;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A limit that comes with a request, and decides where no policy applies: the schema LimitsBody of
 * the API.
 *
 * @param limit units per window
 * @param windowSeconds length of the window
 * @param algorithm sliding_log if absent
 * @param burst units at once, of a bucket
 */
public record Limits(
    long limit, long windowSeconds, Optional<String> algorithm, OptionalLong burst) {
  private static final long MILLIS = 1_000;

  /** Refuses what is missing. */
  public Limits {
    Objects.requireNonNull(algorithm);
    Objects.requireNonNull(burst);
  }

  /** So many units in a window, by an algorithm such as fixed_window. */
  public static Limits of(long limit, long windowSeconds, String algorithm) {
    return new Limits(limit, windowSeconds, Optional.of(algorithm), OptionalLong.empty());
  }

  /**
   * A bucket that holds so many tokens, of which some come back in each period, evenly: Bucket4j's
   * {@code capacity(20).refillGreedy(10, Duration.ofSeconds(1))} is {@code bucket(20, 10,
   * Duration.ofSeconds(1))}.
   *
   * @throws IllegalArgumentException if a number is not above 0, or the period is not of whole
   *     milliseconds
   */
  public static Limits bucket(long capacity, long tokens, Duration period) {
    long millis = period.toMillis();
    if (capacity <= 0 || tokens <= 0 || millis <= 0 || !period.equals(Duration.ofMillis(millis))) {
      throw new IllegalArgumentException(
          tokens
              + " tokens each "
              + period
              + ", "
              + capacity
              + " at once: numbers above 0 and whole"
              + " milliseconds are accepted");
    }
    // Windows are of whole seconds: 10 in 500 ms are 20 in a second.
    long shared = common(MILLIS, millis);
    return new Limits(
        Math.multiplyExact(tokens, MILLIS / shared),
        millis / shared,
        Optional.of("token_bucket"),
        OptionalLong.of(capacity));
  }

  private static long common(long one, long other) {
    return other == 0 ? one : common(other, one % other);
  }

  void write(StringBuilder written) {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("limit", limit);
    members.put("window_seconds", windowSeconds);
    algorithm.ifPresent(name -> members.put("algorithm", name));
    burst.ifPresent(units -> members.put("burst", units));
    Json.write(members, written);
  }
}
