package io.github.tidegate;

import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;

/**
 * Compares the client with a bare HttpClient that asks the same and reads {@code allowed}: calls
 * per second and CPU per call of this process. They take turns, so that a ratio compares like with
 * like.
 */
final class Bench {
  private static final int CALLERS = 16;
  private static final int WARM = 5;
  private static final int TURNS = 5;
  private static final long TURN_NANOS = TimeUnit.SECONDS.toNanos(1);

  private record Figures(double perSecond, double microsOfCpu) {}

  private Bench() {}

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    Map<String, Consumer<Integer>> calls = new LinkedHashMap<>();
    calls.put("bare", bare(url));
    calls.put("client", ours(url, false));
    calls.put("batching", ours(url, true));
    Map<String, List<Figures>> measured = new LinkedHashMap<>();
    ExecutorService threads = Executors.newFixedThreadPool(CALLERS);
    for (int turn = 0; turn < WARM + TURNS; turn++) {
      for (Map.Entry<String, Consumer<Integer>> call : calls.entrySet()) {
        Figures figures = measure(threads, call.getValue());
        if (turn >= WARM) { // The first ones compile.
          measured.computeIfAbsent(call.getKey(), name -> new ArrayList<>()).add(figures);
        }
      }
    }
    threads.shutdown();
    double bareCalls = median(measured.get("bare"), Figures::perSecond);
    double bareCpu = median(measured.get("bare"), Figures::microsOfCpu);
    measured.forEach(
        (name, turns) -> {
          double perSecond = median(turns, Figures::perSecond);
          double cpu = median(turns, Figures::microsOfCpu);
          System.out.printf(
              "| Java, %s | %.0f | %.1f | %+.0f %% | %+.0f %% |%n",
              name, perSecond, cpu, 100 * (perSecond / bareCalls - 1), 100 * (cpu / bareCpu - 1));
        });
    System.exit(0); // The bare client's threads are no daemons.
  }

  private static double median(List<Figures> turns, ToDoubleFunction<Figures> of) {
    return turns.stream().mapToDouble(of).sorted().skip(turns.size() / 2).findFirst().orElseThrow();
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  /** Calls as fast as it is answered, for a turn. */
  private static Figures measure(ExecutorService threads, Consumer<Integer> call) {
    LongAdder count = new LongAdder();
    long spent = cpuNanos();
    long began = System.nanoTime();
    List<CompletableFuture<Void>> callers =
        IntStream.range(0, CALLERS)
            .mapToObj(
                caller ->
                    CompletableFuture.runAsync(
                        () -> {
                          while (System.nanoTime() - began < TURN_NANOS) {
                            call.accept(caller);
                            count.increment();
                          }
                        },
                        threads))
            .toList();
    callers.forEach(CompletableFuture::join);
    double seconds = (System.nanoTime() - began) / 1e9;
    return new Figures(count.sum() / seconds, (cpuNanos() - spent) / 1e3 / count.sum());
  }

  private static Consumer<Integer> bare(String url) {
    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    return caller -> {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(url + "/v1/decisions"))
              .timeout(Duration.ofSeconds(10))
              .header("content-type", "application/json")
              .POST(
                  HttpRequest.BodyPublishers.ofString(
                      "{\"attributes\":{\"client_id\":\"bare" + caller + "\"}}"))
              .build();
      try {
        HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
        if (!response.body().contains("\"allowed\":")) {
          throw new IllegalStateException(response.body());
        }
      } catch (java.io.IOException | InterruptedException error) {
        throw new IllegalStateException(error);
      }
    };
  }

  private static Consumer<Integer> ours(String url, boolean batch) {
    Tidegate client =
        Tidegate.create(
            options ->
                options.url(url).denialCache(0).deadline(Duration.ofSeconds(10)).batch(batch));
    return caller -> {
      Decision decision = client.allow(Request.of("client_id", "ours" + caller));
      if (decision.source() != Decision.Source.SERVER) {
        throw new IllegalStateException("an answer without the server: " + decision.failure());
      }
    };
  }
}
