package io.github.tidegate;

import java.net.URI;
import java.net.http.HttpClient;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** How a client asks, and what it does without an answer. Each method returns this. */
public final class Options {
  private static final Duration MAX_DEADLINE = Duration.ofMinutes(10);
  private static final int MAX_CONNECTIONS = 10_000;
  private static final int MAX_ENTRIES = 1_000_000;

  /** What is answered when the server gives no answer. */
  public enum OnFailure {
    /** Allows. */
    OPEN,
    /** Denies. */
    CLOSED,
    /** Counts in this process, by {@link Options#fallback}. */
    LOCAL
  }

  /**
   * The limit that this process keeps by itself without the server: a token bucket for each value
   * of key. With n processes and a share of 1/n, all of them together stay within the limit.
   *
   * @param limit units per window, over all processes: 1 to 1,000,000,000
   * @param window a second or more
   * @param share this process' part, above 0 and at most 1; it holds at least one unit
   * @param key the attributes that are counted by
   * @param keys how many are kept; then the one unseen for longest is forgotten
   */
  public record Fallback(long limit, Duration window, double share, List<String> key, int keys) {
    /** Copies the key. */
    public Fallback {
      key = List.copyOf(key);
    }

    /** Counts by client_id, of which it keeps 10,000, with the whole limit. */
    public static Fallback of(long limit, Duration window) {
      return new Fallback(limit, window, 1, List.of("client_id"), 10_000);
    }

    /** The same at another share. */
    public Fallback share(double part) {
      return new Fallback(limit, window, part, key, keys);
    }

    private void check() {
      require(limit >= 1 && limit <= 1_000_000_000, "fallback.limit", limit);
      require(window.compareTo(Duration.ofSeconds(1)) >= 0, "fallback.window", window);
      require(share > 0 && share <= 1, "fallback.share", share);
      require(!key.isEmpty(), "fallback.key", key);
      require(keys >= 1 && keys <= MAX_ENTRIES, "fallback.keys", keys);
    }
  }

  URI url;
  String token;
  Duration deadline = Duration.ofMillis(50);
  OnFailure onFailure = OnFailure.OPEN;
  Fallback fallback;
  int denialCache = 1000;
  Duration denialCacheTime = Duration.ofMinutes(1);
  boolean batch;
  int maxConnections = 64;
  int breakerFailures = 5;
  Duration breakerOpen = Duration.ofSeconds(1);
  Consumer<Event> onEvent = event -> {};
  Supplier<Map<String, String>> headers = Map::of;
  HttpClient.Builder http = HttpClient.newBuilder();

  /** The defaults, and TIDEGATE_URL and TIDEGATE_TOKEN of the environment. */
  Options() {
    url(environment("TIDEGATE_URL").orElse("http://127.0.0.1:4000"));
    environment("TIDEGATE_TOKEN").ifPresent(this::token);
  }

  private static Optional<String> environment(String name) {
    return Optional.ofNullable(System.getenv(name)).filter(value -> !value.isEmpty());
  }

  private static void require(boolean fine, String option, Object value) {
    if (!fine) {
      throw new IllegalArgumentException(option + " is " + value + ", which is not accepted");
    }
  }

  /** Where the service is: TIDEGATE_URL, else http://127.0.0.1:4000. */
  public Options url(String address) {
    URI uri =
        URI.create(address.endsWith("/") ? address.substring(0, address.length() - 1) : address);
    boolean known = "http".equals(uri.getScheme()) || "https".equals(uri.getScheme());
    require(
        known
            && uri.getHost() != null
            && uri.getUserInfo() == null
            && uri.getQuery() == null
            && uri.getFragment() == null,
        "url",
        address);
    url = uri;
    return this;
  }

  /** Sent as {@code authorization: Bearer}: TIDEGATE_TOKEN, else none. */
  public Options token(String secret) {
    if (!secret.chars().allMatch(character -> character > ' ' && character < 0x7f)) {
      throw new IllegalArgumentException("token has characters that a header field cannot have");
    }
    token = secret;
    return this;
  }

  /** Bounds each call, with everything that it waits for: 50 ms; 1 ms to 10 minutes. */
  public Options deadline(Duration time) {
    deadline = checkedDeadline(time);
    return this;
  }

  static Duration checkedDeadline(Duration time) {
    require(
        time.compareTo(Duration.ofMillis(1)) >= 0 && time.compareTo(MAX_DEADLINE) <= 0,
        "deadline",
        time);
    return time;
  }

  /** What is answered without the server: OPEN. */
  public Options onFailure(OnFailure mode) {
    onFailure = mode;
    return this;
  }

  /** The limit of {@link OnFailure#LOCAL}: none. */
  public Options fallback(Fallback limit) {
    limit.check();
    fallback = limit;
    return this;
  }

  /** How many denials are remembered until their wait is over: 1,000. 0 keeps none. */
  public Options denialCache(int entries) {
    require(entries >= 0 && entries <= MAX_ENTRIES, "denialCache", entries);
    denialCache = entries;
    return this;
  }

  /** How long one is remembered at most, so that a raised limit is seen: a minute. */
  public Options denialCacheTime(Duration longest) {
    require(!longest.isNegative(), "denialCacheTime", longest);
    denialCacheTime = longest;
    return this;
  }

  /** Sends calls that wait while others are on their way together: false. */
  public Options batch(boolean together) {
    batch = together;
    return this;
  }

  /**
   * How many calls, and so connections, are under way at once: 64. Further calls wait within their
   * deadline.
   */
  public Options maxConnections(int connections) {
    require(connections >= 1 && connections <= MAX_CONNECTIONS, "maxConnections", connections);
    maxConnections = connections;
    return this;
  }

  /** How many failures in a row open the breaker: 5. */
  public Options breakerFailures(int failures) {
    require(failures >= 1, "breakerFailures", failures);
    breakerFailures = failures;
    return this;
  }

  /** How long it stays open before a call tries again: a second. */
  public Options breakerOpen(Duration time) {
    require(time.compareTo(Duration.ofMillis(1)) >= 0, "breakerOpen", time);
    breakerOpen = time;
    return this;
  }

  /**
   * Told each result, by many threads; it must not block, and what it throws is ignored. Hooks add
   * up.
   */
  public Options onEvent(Consumer<Event> hook) {
    Consumer<Event> before = onEvent;
    onEvent =
        event -> {
          before.accept(event);
          hook.accept(event);
        };
    return this;
  }

  /** Makes header fields, such as traceparent, for each call that does not share one: none. */
  public Options headers(Supplier<Map<String, String>> fields) {
    headers = fields;
    return this;
  }

  /**
   * What the client's connections are made by, for a trust store or a proxy: the JDK's defaults.
   */
  public Options http(HttpClient.Builder builder) {
    http = builder;
    return this;
  }

  void check() {
    require(
        onFailure != OnFailure.LOCAL || fallback != null,
        "fallback of onFailure = LOCAL",
        "absent");
  }
}
