package io.github.tidegate;

import java.net.http.HttpHeaders;
import java.time.DateTimeException;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * When the next request to each origin may be sent, as its responses say. Waits are in nanoseconds.
 */
final class Pace {
  /** How many origins are kept; then the one unused for longest is forgotten. */
  static final int MAX_ORIGINS = 1000;

  private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

  private static final class Origin {
    long until;
    long wait;
    long last;
  }

  private final long maxWait;
  private final Map<String, Origin> origins = new LinkedHashMap<>(16, 0.75f, true);

  Pace(long maxWait) {
    this.maxWait = maxWait;
  }

  /** How long a request waits. Those that wait leave one after the other, spread by a tenth. */
  synchronized long departure(String name, long now) {
    Origin origin = origins.get(name);
    if (origin == null) {
      return 0;
    }
    long leaves = origin.last - origin.until > 0 ? origin.last : origin.until;
    if (leaves - now <= 0) {
      return 0;
    }
    long wait = leaves - now + ThreadLocalRandom.current().nextLong(origin.wait / 10 + 1);
    wait = Math.min(wait, maxWait);
    origin.last = now + wait;
    return wait;
  }

  /** Keeps what a response said. A shorter wait does not end a longer one. */
  synchronized void learn(String name, long told, long now) {
    long wait = Math.min(told, maxWait);
    if (wait <= 0) {
      return;
    }
    Origin origin = origins.get(name);
    if (origin == null) {
      if (origins.size() >= MAX_ORIGINS) {
        origins.remove(origins.keySet().iterator().next());
      }
      origin = new Origin();
      origin.until = now;
      origin.last = now;
      origins.put(name, origin);
    }
    if (now + wait - origin.until > 0) {
      origin.until = now + wait;
      origin.wait = wait;
    }
  }

  /** How long a response asks to wait. */
  static long told(int status, HttpHeaders fields, long nowMillis) {
    long limited = fromRateLimit(fields);
    if (status != 429 && status != 503) {
      return limited;
    }
    OptionalLong asked = retryAfter(fields.firstValue("retry-after").orElse("").strip(), nowMillis);
    return asked.orElse(limited > 0 ? limited : SECOND);
  }

  private static OptionalLong retryAfter(String text, long nowMillis) {
    if (!text.isEmpty()
        && text.chars().allMatch(character -> character >= '0' && character <= '9')) {
      // More seconds than a long has nanoseconds are as good as forever.
      long seconds = text.length() > 10 ? Long.MAX_VALUE : Long.parseLong(text);
      return OptionalLong.of(TimeUnit.SECONDS.toNanos(seconds));
    }
    try {
      long date =
          ZonedDateTime.parse(text, DateTimeFormatter.RFC_1123_DATE_TIME)
              .toInstant()
              .toEpochMilli();
      return OptionalLong.of(TimeUnit.MILLISECONDS.toNanos(Math.max(0, date - nowMillis)));
    } catch (DateTimeException malformed) {
      return OptionalLong.empty();
    }
  }

  /**
   * The longest wait of the policies in RateLimit: t where nothing is left, and t spread over what
   * is left where that is less than a tenth of the quota.
   */
  private static long fromRateLimit(HttpHeaders fields) {
    Map<String, Long> quotas = new HashMap<>();
    for (Fields.Item policy : read(fields, "ratelimit-policy", "q", "w").orElse(List.of())) {
      quotas.put(policy.name(), policy.get("q"));
    }
    long longest = 0;
    for (Fields.Item state : read(fields, "ratelimit", "r", "t").orElse(List.of())) {
      long left = state.get("r");
      if (left == 0 || left * 10 < quotas.getOrDefault(state.name(), 0L)) {
        longest = Math.max(longest, TimeUnit.SECONDS.toNanos(state.get("t")) / (left + 1));
      }
    }
    return longest;
  }

  /**
   * A field whose items need the one parameter and may have the other, both as integers that are
   * not negative.
   */
  private static Optional<List<Fields.Item>> read(
      HttpHeaders fields, String name, String needed, String other) {
    return Fields.read(fields.allValues(name))
        .filter(
            items ->
                items.stream()
                    .allMatch(
                        item ->
                            item.has(needed)
                                && (!item.parameters().containsKey(other) || item.has(other))));
  }
}
