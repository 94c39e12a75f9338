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

  /**
   * How long to wait after a response.
   *
   * @param spread whether that is for each of the next requests, not only for the first
   */
  record Wait(long nanos, boolean spread) {}

  private static final class Origin {
    /** Nothing leaves before: nothing was left, or a request was denied. */
    long until;

    /** How long that was to wait. */
    long told;

    /** Between two requests, while little is left. */
    long gap;

    /** After those that wait already. */
    long next;
  }

  private final long maxWait;
  private final Map<String, Origin> origins = new LinkedHashMap<>(16, 0.75f, true);

  Pace(long maxWait) {
    this.maxWait = maxWait;
  }

  /** How long a request waits, which is then taken to leave. */
  synchronized long departure(String name, long now) {
    Origin origin = origins.get(name);
    if (origin == null) {
      return 0;
    }
    long wait = Math.max(origin.until - now, origin.next - now);
    if (wait > 0) {
      long spread = origin.gap > 0 ? origin.gap : origin.told;
      wait = Math.min(wait + ThreadLocalRandom.current().nextLong(spread / 10 + 1), maxWait);
    }
    wait = Math.max(wait, 0);
    origin.next = now + wait + origin.gap;
    return wait;
  }

  /** Keeps what a response said. One to an earlier request does not take a wait back. */
  synchronized void learn(String name, Wait told, long now) {
    long wait = Math.min(told.nanos, maxWait);
    Origin origin = origins.get(name);
    if (origin == null) {
      if (wait <= 0) {
        return;
      }
      if (origins.size() >= MAX_ORIGINS) {
        origins.remove(origins.keySet().iterator().next());
      }
      origin = new Origin();
      origin.until = now;
      origin.next = now;
      origins.put(name, origin);
    }
    long until = now + wait;
    if (told.spread) {
      origin.gap = wait;
      origin.next = until - origin.next > 0 ? until : origin.next;
      return;
    }
    if (origin.gap > 0) {
      origin.gap = 0;
      origin.next = now;
    }
    if (wait > 0 && until - origin.until > 0) {
      origin.until = until;
      origin.told = wait;
    }
  }

  /** How long a response asks to wait. */
  static Wait told(int status, HttpHeaders fields, long nowMillis) {
    Wait limited = fromRateLimit(fields);
    if (status != 429 && status != 503) {
      return limited;
    }
    OptionalLong asked = retryAfter(fields.firstValue("retry-after").orElse("").strip(), nowMillis);
    return new Wait(asked.orElse(limited.nanos > 0 ? limited.nanos : SECOND), false);
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
  private static Wait fromRateLimit(HttpHeaders fields) {
    Map<String, Long> quotas = new HashMap<>();
    for (Fields.Item policy : read(fields, "ratelimit-policy", "q", "w").orElse(List.of())) {
      quotas.put(policy.name(), policy.get("q"));
    }
    Wait longest = new Wait(0, false);
    for (Fields.Item state : read(fields, "ratelimit", "r", "t").orElse(List.of())) {
      long left = state.get("r");
      if (left == 0 || left * 10 < quotas.getOrDefault(state.name(), 0L)) {
        long wait = TimeUnit.SECONDS.toNanos(state.get("t")) / (left + 1);
        if (wait > longest.nanos) {
          longest = new Wait(wait, left > 0);
        }
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
