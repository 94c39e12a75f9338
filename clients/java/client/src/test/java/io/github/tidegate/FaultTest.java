package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * Fault 75: the server is frozen, killed, slow or full. An answer comes within the deadline. What
 * is answered, and that the client recovers by itself, is in clients/conformance.json; here is
 * when.
 */
class FaultTest {
  private static final long DEADLINE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  /** How much later than a sleep of the same length the 99th percentile may be. */
  private static final double LATE_MILLIS = 5;

  private static final int CALLERS = 8;
  private static final int EACH = 13;
  private static TestServer server;

  @BeforeAll
  static void start() {
    server = TestServer.conformance();
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  static Tidegate client(Consumer<Options> change) {
    return Tidegate.create(
        options -> {
          options.url(server.url()).token("conformance-token");
          change.accept(options);
        });
  }

  private static Request request(int caller) {
    return Request.of(Map.of("client_id", "caller" + caller, "resource", "ten"));
  }

  /** How long an action took in nanoseconds, sorted, by several callers at once. */
  private static List<Long> times(IntConsumer action) {
    ExecutorService threads = Executors.newFixedThreadPool(CALLERS);
    List<Long> took = Collections.synchronizedList(new ArrayList<>());
    Consumer<Integer> caller =
        number -> {
          for (int call = 0; call < EACH; call++) {
            long began = System.nanoTime();
            action.accept(number);
            took.add(System.nanoTime() - began);
          }
        };
    List<CompletableFuture<Void>> callers =
        IntStream.range(0, CALLERS)
            .mapToObj(number -> CompletableFuture.runAsync(() -> caller.accept(number), threads))
            .toList();
    callers.forEach(CompletableFuture::join);
    threads.shutdown();
    List<Long> sorted = new ArrayList<>(took);
    Collections.sort(sorted);
    return sorted;
  }

  private static long percentile99(List<Long> sorted) {
    return sorted.get(sorted.size() * 99 / 100);
  }

  private static void answersInTime(String name, boolean async, Consumer<Options> change) {
    server.freeze();
    try {
      answersInTime(name, server.url(), async, change);
    } finally {
      server.thaw();
    }
  }

  /**
   * Each call asks a server that gives no answer. In each round others only sleep for the deadline:
   * they say how late this machine is by itself. A round in which the calls are later than that is
   * late; the machine may make some so, as may compiling the first ones, and the proof is that good
   * rounds prevail.
   */
  private static void answersInTime(
      String name, String url, boolean async, Consumer<Options> change) {
    Consumer<Options> patient = options -> options.url(url).breakerFailures(Integer.MAX_VALUE);
    StringBuilder said = new StringBuilder(name);
    try (Tidegate client = client(change.andThen(patient))) {
      int ahead = 0;
      while (ahead < 3 && ahead > -7) {
        CompletableFuture<List<Long>> slept =
            CompletableFuture.supplyAsync(
                () -> times(caller -> LockSupport.parkNanos(DEADLINE_NANOS)));
        List<Long> took = times(caller -> answer(client, async, caller));
        double machine = percentile99(slept.join()) / 1e6;
        double late = percentile99(took) / 1e6;
        said.append(
            String.format(
                "%n  p50 %.1f ms, p99 %.1f ms; of sleeping for 50 ms p99 %.1f ms",
                took.get(took.size() / 2) / 1e6, late, machine));
        ahead += late <= machine + LATE_MILLIS ? 1 : -1;
      }
      assertTrue(ahead > 0, said.toString());
      System.out.println(said);
    }
  }

  private static void answer(Tidegate client, boolean async, int caller) {
    Decision decision =
        async ? client.allowAsync(request(caller)).join() : client.allow(request(caller));
    assertEquals(Decision.Source.FALLBACK, decision.source());
  }

  @Test
  void fault75FaultyServersCostNoMoreThanTheDeadline() {
    for (String fault :
        List.of("drip", "slow", "full", "garbage", "error_500", "endless", "endless_header")) {
      try (TestServer faulty = TestServer.fault(fault)) {
        answersInTime(fault, faulty.url(), false, options -> {});
      }
    }
    answersInTime("killed", TestServer.nobody(), false, options -> {});
    for (String fault : List.of("drip", "full", "endless")) {
      try (TestServer faulty = TestServer.fault(fault)) {
        answersInTime(fault + ", futures", faulty.url(), true, options -> {});
      }
    }
  }

  @Test
  void fault75AnswersWithinTheDeadlineWhileTheServerIsFrozen() {
    answersInTime("each alone", false, options -> {});
    answersInTime("in batches", false, options -> options.batch(true));
    answersInTime("few connections", false, options -> options.maxConnections(2));
    answersInTime("futures", true, options -> {});
  }

  @Test
  void fault75AsksNobodyWhileTheBreakerIsOpen() {
    try (Tidegate client = client(options -> options.breakerOpen(Duration.ofHours(1)))) {
      server.freeze();
      for (int call = 0; call < 5; call++) {
        client.allow(request(call));
      }
      assertTrue(client.stats().breakerOpen());
      for (int call = 0; call < 1000; call++) {
        assertEquals(Failure.BREAKER, client.allow(request(call)).failure().orElseThrow());
      }
    } finally {
      server.thaw();
    }
  }

  @Test
  void fault75TheBreakerKnowsHowACallEndedBeforeItsCaller() {
    Consumer<Options> each = options -> options.breakerFailures(3).breakerOpen(Duration.ofHours(1));
    for (boolean batch : new boolean[] {false, true}) {
      try (Tidegate client = client(each.andThen(options -> options.batch(batch)))) {
        server.freeze();
        for (int call = 1; call <= 3; call++) {
          Decision decision =
              call == 2 ? client.allowAsync(request(0)).join() : client.allow(request(0));
          assertEquals(Failure.TIMEOUT, decision.failure().orElseThrow());
          assertEquals(call == 3, client.stats().breakerOpen(), "batch " + batch + ", " + call);
        }
      } finally {
        server.thaw();
      }
    }
  }

  @Test
  void aClientThatIsClosedLeavesNoCallWaiting() throws Exception {
    Tidegate client = client(options -> options.deadline(Duration.ofMillis(500)));
    server.freeze();
    try {
      CompletableFuture<Decision> waits =
          CompletableFuture.supplyAsync(() -> client.allow(request(0)));
      CompletableFuture<Decision> future = client.allowAsync(request(1));
      client.close();
      assertEquals(Decision.Source.FALLBACK, waits.get(1, TimeUnit.MINUTES).source());
      assertEquals(Decision.Source.FALLBACK, future.get(1, TimeUnit.MINUTES).source());
    } finally {
      server.thaw();
    }
  }

  @Test
  void aCallerWhoGivesUpSaysNothingAboutTheServer() {
    try (Tidegate client =
        client(options -> options.breakerFailures(1).deadline(Duration.ofMinutes(1)))) {
      Thread.currentThread().interrupt();
      Decision decision = client.allow(request(0));
      assertTrue(Thread.interrupted());
      assertEquals(Failure.CANCELLED, decision.failure().orElseThrow());
      assertFalse(client.stats().breakerOpen());
      server.freeze();
      CompletableFuture<Decision> future = client.allowAsync(request(1));
      future.cancel(true);
      server.thaw();
      assertEquals(Decision.Source.SERVER, client.allow(request(2)).source());
      assertFalse(client.stats().breakerOpen());
    }
  }

  @Test
  void permitsAreBackAtTheEndOfTheirScope() {
    try (Tidegate client = client(options -> options.deadline(Duration.ofSeconds(10)))) {
      Request request = Request.of(Map.of("client_id", "scope", "resource", "slots"));
      for (int call = 0;
          call < 5;
          call++) { // More than the limit of 2: each has to be back before the next.
        try (Permit permit = client.acquire(request)) {
          assertTrue(permit.held());
          assertEquals(Decision.Source.SERVER, permit.decision().source());
          permit.release();
          assertFalse(permit.held());
        }
      }
    }
  }

  @Test
  void settlingGivesBackWhatWasNotUsed() {
    try (Tidegate client = client(options -> options.deadline(Duration.ofSeconds(10)))) {
      Request request = Request.of(Map.of("client_id", "stream", "resource", "ten"));
      Charge charge = client.reserve(request.cost(8));
      assertEquals(2, charge.decision().remaining().orElseThrow());
      charge.settle(3).join();
      charge.settle(0).join();
      assertEquals(7, client.allow(request.cost(0)).remaining().orElseThrow());
    }
  }

  @Test
  void aHookThatThrowsIsNoOutage() {
    List<Event> seen = Collections.synchronizedList(new ArrayList<>());
    try (Tidegate client =
        client(
            options ->
                options
                    .deadline(Duration.ofSeconds(10))
                    .headers(
                        () -> {
                          throw new IllegalStateException("a hook's mistake");
                        })
                    .onEvent(seen::add)
                    .onEvent(
                        event -> {
                          throw new IllegalStateException("a hook's mistake");
                        }))) {
      assertTrue(client.allow(request(77)).allowed());
    }
    assertEquals(1, seen.size());
    Event event = seen.get(0);
    assertEquals(
        "allow allowed ten 1",
        event.operation()
            + " "
            + event.outcome()
            + " "
            + event.policy().get()
            + " "
            + event.count());
    assertEquals(Decision.Source.SERVER, event.source().orElseThrow());
  }

  @Test
  void aClosedClientAnswersByItsMode() {
    Tidegate client = client(options -> options.onFailure(Options.OnFailure.CLOSED));
    client.close();
    Decision decision = client.allow(request(0));
    assertFalse(decision.allowed());
    assertEquals(Failure.CANCELLED, decision.failure().orElseThrow());
    assertFalse(client.allowAsync(request(0)).join().allowed());
  }
}
