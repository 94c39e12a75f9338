package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.BiFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** What reaches the server, by its own metrics: how many connections and requests calls take. */
class ConnectionsTest {
  private static final BiFunction<Tidegate, Request, Decision> WAITING = Tidegate::allow;
  private static final BiFunction<Tidegate, Request, Decision> NOT_WAITING =
      (client, request) -> client.allowAsync(request).join();

  private static Tidegate client(TestServer server, boolean batch) {
    return Tidegate.create(
        options ->
            options
                .url(server.url())
                .token("conformance-token")
                .deadline(Duration.ofMinutes(1))
                .batch(batch));
  }

  /** The sum of the lines of the metrics page that begin with a name and have some text. */
  private static long metric(TestServer server, String name, String has)
      throws IOException, InterruptedException {
    HttpRequest page = HttpRequest.newBuilder(URI.create(server.url() + "/metrics")).build();
    return HttpClient.newHttpClient()
        .send(page, HttpResponse.BodyHandlers.ofString())
        .body()
        .lines()
        .filter(line -> line.startsWith(name) && line.contains(has))
        .mapToLong(line -> Long.parseLong(line.substring(line.lastIndexOf(' ') + 1)))
        .sum();
  }

  /** Asks so often, some at once, each without spending. */
  private static void peek(
      BiFunction<Tidegate, Request, Decision> ask, Tidegate client, int atOnce, int each) {
    Request request = Request.of(Map.of("client_id", "a", "resource", "ten")).peeking();
    ExecutorService threads = Executors.newFixedThreadPool(atOnce);
    List<CompletableFuture<Void>> callers =
        IntStream.range(0, atOnce)
            .mapToObj(
                caller ->
                    CompletableFuture.runAsync(
                        () -> {
                          for (int call = 0; call < each; call++) {
                            assertEquals(
                                Decision.Source.SERVER, ask.apply(client, request).source());
                          }
                        },
                        threads))
            .toList();
    callers.forEach(CompletableFuture::join);
    threads.shutdown();
  }

  @Test
  void connectionsAreKept() throws Exception {
    for (BiFunction<Tidegate, Request, Decision> ask : List.of(WAITING, NOT_WAITING)) {
      for (int atOnce : new int[] {1, 16}) {
        try (TestServer server = TestServer.conformance();
            Tidegate client = client(server, false)) {
          peek(ask, client, atOnce, 100);
          // One more reads the metrics.
          long made = metric(server, "tidegate_connections_accepted_total", "\"api\"") - 1;
          assertTrue(1 <= made && made <= atOnce, made + " connections, " + atOnce + " at once");
        }
      }
    }
  }

  @Test
  void batchingSendsFewerRequests() throws Exception {
    for (BiFunction<Tidegate, Request, Decision> ask : List.of(WAITING, NOT_WAITING)) {
      try (TestServer server = TestServer.conformance();
          Tidegate client = client(server, true)) {
        peek(ask, client, 200, 5);
        long sent = metric(server, "tidegate_http_requests_total", "\"/v1/decisions\"");
        assertTrue(1 <= sent && sent <= 500, sent + " requests for 1,000 calls, 200 at once");
      }
    }
  }

  @Test
  void moreThanAThousandRequestsAreAskedInParts() throws Exception {
    try (TestServer server = TestServer.conformance();
        Tidegate client = client(server, false)) {
      List<Decision> decisions =
          client.batch(
              IntStream.range(0, 2500)
                  .mapToObj(
                      number -> Request.of(Map.of("client_id", "c" + number, "resource", "ten")))
                  .toList());
      assertEquals(2500, decisions.size());
      for (Decision decision : decisions) {
        assertEquals(Decision.Source.SERVER, decision.source());
        assertEquals(9, decision.remaining().orElseThrow());
      }
      assertEquals(3, metric(server, "tidegate_http_requests_total", "\"/v1/decisions\""));
    }
  }
}
