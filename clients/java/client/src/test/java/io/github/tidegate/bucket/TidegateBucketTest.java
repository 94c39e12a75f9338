package io.github.tidegate.bucket;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bucket4j.Bucket;
import io.github.tidegate.Limits;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class TidegateBucketTest {
  private static TestServer server;
  private static Tidegate client;

  @BeforeAll
  static void start() {
    server =
        TestServer.with(
            """
            [[policy]]
            name = "fast"
            algorithm = "token_bucket"
            limit = 4
            window_seconds = 2
            burst = 3
            match = { resource = "fast" }

            [[policy]]
            name = "hour"
            algorithm = "token_bucket"
            limit = 3
            window_seconds = 3600
            match = { resource = "hour" }
            """);
    client = Tidegate.create(options -> options.url(server.url()).deadline(Duration.ofSeconds(10)));
  }

  @AfterAll
  static void stop() {
    client.close();
    server.close();
  }

  private static TidegateBucket bucket(String resource, String key) {
    return new TidegateBucket(client, Map.of("resource", resource, "client_id", key));
  }

  @Test
  void consumesAndSaysWhatIsLeft() {
    TidegateBucket bucket = bucket("hour", "consumes");
    assertEquals(3, bucket.getAvailableTokens());
    assertTrue(bucket.tryConsume(2));
    assertTrue(bucket.estimateAbilityToConsume(1).canBeConsumed());
    assertFalse(bucket.estimateAbilityToConsume(2).canBeConsumed());
    ConsumptionProbe last = bucket.tryConsumeAndReturnRemaining(1);
    assertTrue(last.isConsumed());
    assertEquals(0, last.getRemainingTokens());
    assertTrue(last.getNanosToWaitForReset() > TimeUnit.MINUTES.toNanos(50));
    ConsumptionProbe denied = bucket.tryConsumeAndReturnRemaining(1);
    assertFalse(denied.isConsumed());
    assertTrue(
        denied.getNanosToWaitForRefill() > 0
            && denied.getNanosToWaitForRefill() <= TimeUnit.MINUTES.toNanos(20));
    bucket.addTokens(1);
    assertTrue(bucket.tryConsume(1));
    assertEquals(Long.MAX_VALUE, bucket.tryConsumeAndReturnRemaining(4).getNanosToWaitForRefill());
    assertThrows(IllegalArgumentException.class, () -> bucket.tryConsume(0));
  }

  @Test
  void itsOwnNumbersHoldWhereNoPolicyApplies() {
    Limits numbers = Limits.bucket(2, 1, Duration.ofHours(1));
    TidegateBucket own =
        new TidegateBucket(client, Map.of("resource", "own", "client_id", "o"), numbers);
    assertEquals(2, own.getAvailableTokens());
    assertTrue(own.tryConsume(2));
    assertFalse(own.tryConsume(1));
    own.addTokens(1);
    assertTrue(own.tryConsume(1));
    assertFalse(own.tryConsume(1));
    // A thousand come with the request, and the policy has three.
    Limits many = Limits.bucket(1_000, 1_000, Duration.ofSeconds(1));
    Map<String, String> limited = Map.of("resource", "hour", "client_id", "o");
    assertEquals(3, new TidegateBucket(client, limited, many).getAvailableTokens());
  }

  @Test
  void periodsAreWrittenInWholeSeconds() {
    assertEquals(Limits.bucket(5, 20, Duration.ofSeconds(1)), bucketOf(10, 500));
    assertEquals(Limits.bucket(5, 20, Duration.ofSeconds(3)), bucketOf(10, 1_500));
    assertEquals(60, Limits.bucket(5, 7, Duration.ofMinutes(1)).windowSeconds());
    assertThrows(IllegalArgumentException.class, () -> bucketOf(0, 500));
    assertThrows(
        IllegalArgumentException.class, () -> Limits.bucket(1, 1, Duration.ofNanos(1_000_001)));
  }

  private static Limits bucketOf(long tokens, long millis) {
    return Limits.bucket(5, tokens, Duration.ofMillis(millis));
  }

  @Test
  void waitsUntilThereIsEnough() throws InterruptedException {
    TidegateBucket bucket = bucket("fast", "waits");
    long began = System.nanoTime();
    for (int event = 0; event < 5; event++) {
      bucket.asBlocking().consume(1);
    }
    assertTrue(System.nanoTime() - began >= TimeUnit.SECONDS.toNanos(1));
    assertThrows(IllegalArgumentException.class, () -> bucket.asBlocking().consume(4));
    TidegateBucket hour = bucket("hour", "waits");
    assertTrue(hour.tryConsume(3));
    assertFalse(hour.asBlocking().tryConsume(1, Duration.ofMinutes(1)));
  }

  /** What the migration page says is left out. */
  private static final Set<String> LEFT_OUT =
      Set.of(
          "asScheduler",
          "asVerbose",
          "consumeIgnoringRateLimits",
          "forceAddTokens",
          "getListener",
          "replaceConfiguration",
          "reset",
          "toListenable",
          "tryConsumeAsMuchAsPossible",
          "builder");

  @Test
  void hasTheOtherCallsOfBucket4j() {
    Set<String> theirs = new TreeSet<>();
    for (Method method : Bucket.class.getMethods()) {
      theirs.add(method.getName());
    }
    theirs.removeAll(LEFT_OUT);
    Set<String> ours =
        Arrays.stream(TidegateBucket.class.getDeclaredMethods())
            .filter(method -> java.lang.reflect.Modifier.isPublic(method.getModifiers()))
            .map(Method::getName)
            .collect(Collectors.toCollection(TreeSet::new));
    assertEquals(theirs, ours);
  }
}
