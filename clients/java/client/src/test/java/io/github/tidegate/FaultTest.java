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
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Fault 75: the server is frozen, killed, slow or full. Every call ends by its mode while the
 * server still gives no answer. That the client recovers by itself is in clients/conformance.json;
 * how much later than its deadline a call ends is measured in regression/clients.
 */
@Timeout(value = 2, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FaultTest {
  private static final int CALLERS = 8;
  private static final int EACH = 3;
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

  /** Several callers at once ask a server that gives no answer. Each call ends by its mode. */
  private static void endsByItsMode(
      String name, String url, boolean async, Consumer<Options> change) {
    ExecutorService threads = Executors.newFixedThreadPool(CALLERS);
    Consumer<Options> patient = options -> options.url(url).breakerFailures(Integer.MAX_VALUE);
    try (Tidegate client = client(change.andThen(patient))) {
      Consumer<Integer> ask =
          caller -> {
            for (int call = 0; call < EACH; call++) {
              Decision decision =
                  async ? client.allowAsync(request(caller)).join() : client.allow(request(caller));
              assertEquals(Decision.Source.FALLBACK, decision.source(), name);
            }
          };
      List<CompletableFuture<Void>> callers =
          IntStream.range(0, CALLERS)
              .mapToObj(caller -> CompletableFuture.runAsync(() -> ask.accept(caller), threads))
              .toList();
      callers.forEach(CompletableFuture::join);
    } finally {
      threads.shutdown();
    }
  }

  @Test
  void fault75EachCallOfAFaultyServerEndsByItsMode() {
    for (String fault :
        List.of("drip", "slow", "full", "garbage", "error_500", "endless", "endless_header")) {
      try (TestServer faulty = TestServer.fault(fault)) {
        endsByItsMode(fault, faulty.url(), false, options -> {});
        endsByItsMode(fault + ", futures", faulty.url(), true, options -> {});
      }
    }
    endsByItsMode("killed", TestServer.nobody(), false, options -> {});
  }

  @Test
  void fault75EachCallOfAFrozenServerEndsByItsMode() {
    server.freeze();
    try {
      endsByItsMode("each alone", server.url(), false, options -> {});
      endsByItsMode("in batches", server.url(), false, options -> options.batch(true));
      endsByItsMode("few connections", server.url(), false, options -> options.maxConnections(2));
      endsByItsMode("futures", server.url(), true, options -> {});
    } finally {
      server.thaw();
    }
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
