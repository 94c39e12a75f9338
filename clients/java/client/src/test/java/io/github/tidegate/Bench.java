package io.github.tidegate;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;

/**
 * Compares the client with a bare HttpClient that asks the same and reads {@code allowed}: calls
 * per second and CPU per call of this process. They take turns, so that a ratio compares like with
 * like.
 */
final class Bench {
  private static final int AT_ONCE = 16;

  /** So many calls of each are made before any is measured: the first ones compile. */
  private static final int WARM = 20_000;

  private static final int TURNS = 5;

  /** What clients have without an option. */
  private static final long DEADLINE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  private static final long TURN_NANOS = TimeUnit.SECONDS.toNanos(1);

  private record Figures(double calls, double perSecond, double microsOfCpu) {}

  private Bench() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments[1].equals("speed")) {
      speed(arguments[0]);
    } else {
      late(arguments[0], arguments[2], List.of(arguments).subList(3, arguments.length));
    }
    System.exit(0); // The bare client's threads are no daemons.
  }

  private static void speed(String url) {
    Consumer<Integer> plain = ours(url, false);
    Consumer<Integer> hand = bare(url);
    Consumer<Integer> together = ours(url, true);
    compare("Java, beside java.net.http", 1, plain, hand);
    compare("Java, beside java.net.http", AT_ONCE, plain, hand);
    compare("Java, batching, beside java.net.http", AT_ONCE, together, hand);
    compare("Java, batching, beside the same without", AT_ONCE, together, plain);
  }

  private static void compare(
      String name, int callers, Consumer<Integer> mine, Consumer<Integer> hand) {
    ExecutorService threads = Executors.newFixedThreadPool(callers);
    List<Figures> ours = new ArrayList<>();
    List<Figures> theirs = new ArrayList<>();
    for (Consumer<Integer> subject : List.of(mine, hand)) {
      for (double calls = 0; calls < WARM; ) {
        calls += measure(threads, callers, subject).calls;
      }
    }
    for (int turn = 0; turn < TURNS; turn++) {
      ours.add(measure(threads, callers, mine));
      theirs.add(measure(threads, callers, hand));
    }
    threads.shutdown();
    double calls = median(ours, Figures::perSecond);
    double cpu = median(ours, Figures::microsOfCpu);
    System.out.printf(
        "| %s | %d | %.0f | %.2f | %.0f | %.2f |%n",
        name,
        callers,
        calls,
        calls / median(theirs, Figures::perSecond),
        cpu,
        cpu / median(theirs, Figures::microsOfCpu));
  }

  /**
   * How late calls end of servers that give no answer; {@code faulty} are {@code NAME=URL}. The
   * first server stops in the middle of the calls, as it would in production: what compiles has
   * compiled by then.
   */
  private static void late(String url, String server, List<String> faulty) throws Exception {
    Tidegate client = patient(url);
    timed(asking(client), AT_ONCE, WARM / AT_ONCE);
    new ProcessBuilder("kill", "-STOP", server).inheritIO().start().waitFor();
    for (int callers : new int[] {1, AT_ONCE}) {
      show("frozen", client, callers, 200);
    }
    for (String fault : faulty) {
      String[] parts = fault.split("=", 2);
      show(parts[0], patient(parts[1]), AT_ONCE, 50);
    }
  }

  private static Tidegate patient(String url) {
    return Tidegate.create(options -> options.url(url).breakerFailures(Integer.MAX_VALUE));
  }

  private static Runnable asking(Tidegate client) {
    return () -> client.allow(Request.of("client_id", "late"));
  }

  /** Prints how late calls end. As many others only sleep at the same time. */
  private static void show(String name, Tidegate client, int callers, int calls) {
    CompletableFuture<List<Double>> slept =
        CompletableFuture.supplyAsync(
            () -> timed(() -> LockSupport.parkNanos(DEADLINE_NANOS), callers, calls));
    List<Double> took = timed(asking(client), callers, calls);
    double late = took.get(took.size() * 99 / 100);
    double machine = slept.join().get(took.size() * 99 / 100);
    System.out.printf(
        "| Java, %s | %d | %.1f | %.1f | %.1f | %.1f | %.2f |%n",
        name,
        callers,
        took.get(took.size() / 2),
        late,
        took.get(took.size() - 1),
        machine,
        late / machine);
  }

  /** Each caller acts so many times; how many milliseconds each took, sorted. */
  private static List<Double> timed(Runnable action, int atOnce, int times) {
    ExecutorService threads = Executors.newFixedThreadPool(atOnce);
    List<Double> took = Collections.synchronizedList(new ArrayList<>());
    Runnable caller =
        () -> {
          for (int time = 0; time < times; time++) {
            long began = System.nanoTime();
            action.run();
            took.add((System.nanoTime() - began) / 1e6);
          }
        };
    List<CompletableFuture<Void>> callers =
        IntStream.range(0, atOnce)
            .mapToObj(number -> CompletableFuture.runAsync(caller, threads))
            .toList();
    callers.forEach(CompletableFuture::join);
    threads.shutdown();
    List<Double> sorted = new ArrayList<>(took);
    Collections.sort(sorted);
    return sorted;
  }

  private static double median(List<Figures> turns, ToDoubleFunction<Figures> of) {
    return turns.stream().mapToDouble(of).sorted().skip(turns.size() / 2).findFirst().orElseThrow();
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  /** Calls as fast as it is answered, for a turn. */
  private static Figures measure(ExecutorService threads, int atOnce, Consumer<Integer> call) {
    LongAdder count = new LongAdder();
    long spent = cpuNanos();
    long began = System.nanoTime();
    List<CompletableFuture<Void>> callers =
        IntStream.range(0, atOnce)
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
    double calls = count.sum();
    return new Figures(calls, calls / seconds, (cpuNanos() - spent) / 1e3 / calls);
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
      while (!asked(client, request)) {
        // A kept connection had ended: what is written by hand asks again.
      }
    };
  }

  private static boolean asked(HttpClient client, HttpRequest request) {
    try {
      HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
      if (!response.body().contains("\"allowed\":")) {
        throw new IllegalStateException(response.body());
      }
      return true;
    } catch (IOException error) {
      return false;
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
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
