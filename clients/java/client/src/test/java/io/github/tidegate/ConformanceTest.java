package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The cases of clients/conformance.json against the real binary, waiting and not waiting. */
class ConformanceTest {
  private static final long UNTIL_NANOS = TimeUnit.SECONDS.toNanos(20);
  private static final Map<String, Object> DOCUMENT = Document.read();
  private static TestServer shared;

  @BeforeAll
  static void start() {
    shared = TestServer.conformance();
  }

  @AfterAll
  static void stop() {
    shared.close();
  }

  @TestFactory
  Stream<DynamicTest> waiting() {
    return cases(false, "");
  }

  /**
   * The same by futures; the cases on the shared server spend what those above have spent, under
   * other names.
   */
  @TestFactory
  Stream<DynamicTest> notWaiting() {
    return cases(true, "async-");
  }

  private static Stream<DynamicTest> cases(boolean async, String prefix) {
    return Document.list(DOCUMENT.get("cases")).stream()
        .map(Document::object)
        .map(
            one ->
                DynamicTest.dynamicTest((String) one.get("name"), () -> run(one, async, prefix)));
  }

  private static void run(Map<String, Object> one, boolean async, String prefix) {
    TestServer server = null;
    String url = null;
    if (one.get("server") instanceof Map<?, ?> fault) {
      server = TestServer.fault((String) fault.get("fault"));
    } else if ("own".equals(one.get("server"))) {
      server = TestServer.conformance();
    } else {
      url = "shared".equals(one.get("server")) ? shared.url() : TestServer.nobody();
    }
    String address = server == null ? url : server.url();
    List<Event> events = new CopyOnWriteArrayList<>();
    try (Tidegate client =
        Tidegate.create(
            options -> {
              configure(options, Document.object(DOCUMENT.get("options")));
              configure(options, Document.object(one.get("options")));
              options.url(address).onEvent(events::add);
            })) {
      Run run = new Run(client, server, async, prefix);
      int index = 0;
      for (Object step : Document.list(one.get("steps"))) {
        events.clear();
        run.step(Document.object(step), "step " + index);
        if (Document.object(step).get("events") instanceof List<?> expected) {
          Run.expect(
              expected,
              events.stream().map(ConformanceTest::shown).toList(),
              "events of step " + index);
        }
        index++;
      }
    } finally {
      if (server != null) {
        server.close();
      }
    }
  }

  private static Duration millis(Object value) {
    return Duration.ofMillis((Long) value);
  }

  private static int integer(Object value) {
    return ((Long) value).intValue();
  }

  private static void configure(Options options, Map<String, Object> given) {
    given.forEach(
        (name, value) -> {
          switch (name) {
            case "url" -> options.url((String) value);
            case "token" -> options.token((String) value);
            case "deadline_ms" -> options.deadline(millis(value));
            case "on_failure" ->
                options.onFailure(
                    Options.OnFailure.valueOf(((String) value).toUpperCase(Locale.ROOT)));
            case "denial_cache" -> options.denialCache(integer(value));
            case "denial_cache_ms" -> options.denialCacheTime(millis(value));
            case "batch" -> options.batch((Boolean) value);
            case "max_connections" -> options.maxConnections(integer(value));
            case "breaker_failures" -> options.breakerFailures(integer(value));
            case "breaker_open_ms" -> options.breakerOpen(millis(value));
            case "fallback" -> options.fallback(fallback(Document.object(value)));
            default -> throw new AssertionError("the option " + name + " is not known");
          }
        });
  }

  private static Options.Fallback fallback(Map<String, Object> given) {
    long limit = (Long) given.get("limit");
    Duration window = Duration.ofSeconds((Long) given.get("window_seconds"));
    double share = given.get("share") instanceof Number part ? part.doubleValue() : 1;
    int keys = given.get("keys") instanceof Long count ? count.intValue() : 10_000;
    return new Options.Fallback(limit, window, share, List.of("client_id"), keys);
  }

  @Test
  void optionsThatMakeNoSenseMakeNoClient() {
    for (Object given : Document.list(DOCUMENT.get("invalid_options"))) {
      assertThrows(
          IllegalArgumentException.class,
          () -> Tidegate.create(options -> configure(options, Document.object(given))).close(),
          given.toString());
    }
  }

  @Test
  void longValuesAreCutAndHashed() {
    for (Object item : Document.list(DOCUMENT.get("bounded"))) {
      Map<String, Object> pair = Document.object(item);
      assertEquals(
          Document.text(pair.get("sent")), Bounded.value(Document.text(pair.get("value"))));
    }
    assertEquals("a\uFFFD~", Bounded.value("a\uD800").substring(0, 3));
    assertEquals(false, Bounded.value("a\uD800").equals(Bounded.value("a\uD801")));
  }

  /** A decision as the document names its fields. */
  static Map<String, Object> shown(Decision decision) {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("allowed", decision.allowed());
    if (decision.noMatch()) {
      fields.put("no_match", true);
    }
    put(fields, "policy", decision.policy());
    put(fields, "limit", decision.limit());
    put(fields, "remaining", decision.remaining());
    put(fields, "retry_after", decision.retryAfter());
    put(fields, "retry_after_ms", decision.retryAfterMs());
    put(fields, "reset_ms", decision.resetMs());
    put(fields, "delay_ms", decision.delayMs());
    put(fields, "degraded", decision.degraded());
    put(fields, "permit", decision.permit());
    fields.put("source", decision.source().word());
    put(fields, "failure", decision.failure().map(Failure::word));
    put(fields, "rate_limit_policy", decision.rateLimitPolicy());
    put(fields, "rate_limit", decision.rateLimit());
    fields.put("policies", decision.policies().stream().map(ConformanceTest::shown).toList());
    return fields;
  }

  private static Map<String, Object> shown(Event event) {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("operation", event.operation());
    fields.put("outcome", event.outcome());
    fields.put("count", (long) event.count());
    put(fields, "source", event.source().map(Decision.Source::word));
    put(fields, "failure", event.failure().map(Failure::word));
    put(fields, "policy", event.policy());
    return fields;
  }

  private static Map<String, Object> shown(PolicyPart part) {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("policy", part.policy());
    fields.put("mode", part.mode());
    fields.put("allowed", part.allowed());
    fields.put("limit", part.limit());
    fields.put("remaining", part.remaining());
    put(fields, "retry_after_ms", part.retryAfterMs());
    fields.put("reset_ms", part.resetMs());
    fields.put("concurrent", part.concurrent());
    return fields;
  }

  private static Map<String, Object> shown(Explanation explanation) {
    List<Object> policies = new ArrayList<>();
    for (Explanation.OfPolicy policy : explanation.policies()) {
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("applies", policy.applies());
      fields.put("policy", policy.policy());
      put(fields, "because_of", policy.becauseOf());
      put(fields, "verdict", policy.verdict().map(ConformanceTest::shown));
      policies.add(fields);
    }
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("allowed", explanation.allowed());
    fields.put("policies", policies);
    put(fields, "request_limits", explanation.requestLimits().map(ConformanceTest::shown));
    return fields;
  }

  private static Map<String, Object> shown(Explanation.OfRequest own) {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("limits", own.limits());
    fields.put("decide", own.decide());
    put(fields, "verdict", own.verdict().map(ConformanceTest::shown));
    return fields;
  }

  private static void put(Map<String, Object> fields, String name, Optional<?> value) {
    value.ifPresent(known -> fields.put(name, known));
  }

  private static void put(Map<String, Object> fields, String name, OptionalLong value) {
    value.ifPresent(known -> fields.put(name, known));
  }

  /** One case on its way. */
  private record Run(
      Tidegate client,
      TestServer server,
      boolean async,
      String prefix,
      Map<String, Permit> permits) {
    Run(Tidegate client, TestServer server, boolean async, String prefix) {
      this(client, server, async, prefix, new LinkedHashMap<>());
    }

    private Request request(Map<String, Object> step) {
      Map<String, String> attributes = new LinkedHashMap<>();
      Document.object(step.get("attributes"))
          .forEach(
              (name, value) ->
                  attributes.put(
                      name, (name.equals("client_id") ? prefix : "") + Document.text(value)));
      long cost = step.get("cost") instanceof Long units ? units : 1;
      return new Request(attributes, cost, Boolean.TRUE.equals(step.get("peek")), limits(step));
    }

    private static Optional<Limits> limits(Map<String, Object> step) {
      if (step.get("limits") == null) {
        return Optional.empty();
      }
      Map<String, Object> given = Document.object(step.get("limits"));
      return Optional.of(
          new Limits(
              (Long) given.get("limit"),
              (Long) given.get("window_seconds"),
              Optional.ofNullable((String) given.get("algorithm")),
              given.get("burst") instanceof Long burst
                  ? OptionalLong.of(burst)
                  : OptionalLong.empty()));
    }

    private static <T> T joined(CompletableFuture<T> future) {
      try {
        return future.join();
      } catch (CompletionException error) {
        throw (RuntimeException) error.getCause();
      }
    }

    private Object call(Map<String, Object> step) {
      Tidegate asked =
          step.containsKey("deadline_ms")
              ? client.withDeadline(millis(step.get("deadline_ms")))
              : client;
      try {
        return result(asked, step);
      } catch (InvalidRequestException invalid) {
        return Map.of("error", "invalid_request", "status", (long) invalid.status());
      } catch (UnavailableException unavailable) {
        return Map.of("error", "unavailable");
      }
    }

    private Object result(Tidegate asked, Map<String, Object> step) {
      Map<String, Object> fields = new LinkedHashMap<>();
      switch ((String) step.get("call")) {
        case "allow" -> {
          Request request = request(step);
          return shown(async ? joined(asked.allowAsync(request)) : asked.allow(request));
        }
        case "batch" -> {
          List<Request> requests =
              Document.list(step.get("requests")).stream()
                  .map(Document::object)
                  .map(this::request)
                  .toList();
          List<Decision> decisions =
              async ? joined(asked.batchAsync(requests)) : asked.batch(requests);
          return decisions.stream().map(ConformanceTest::shown).toList();
        }
        case "refund" -> {
          Request request = request(step);
          Refunded refunded = async ? joined(asked.refundAsync(request)) : asked.refund(request);
          fields.put("policies", refunded.policies());
          put(fields, "failure", refunded.failure().map(Failure::word));
          return fields;
        }
        case "acquire" -> {
          Request request = request(step);
          Permit permit = async ? joined(asked.acquireAsync(request)) : asked.acquire(request);
          if (step.containsKey("as")) {
            permits.put((String) step.get("as"), permit);
          }
          fields.putAll(shown(permit.decision()));
          fields.put("held", permit.held());
          return fields;
        }
        case "renew" -> {
          put(fields, "lease_ms", permits.get(step.get("permit")).renew().map(Duration::toMillis));
          return fields;
        }
        case "release" -> {
          permits.get(step.get("permit")).release();
          return fields;
        }
        case "explain" -> {
          Request request = request(step);
          return shown(async ? joined(asked.explainAsync(request)) : asked.explain(request));
        }
        default -> throw new AssertionError("the call " + step.get("call") + " is not known");
      }
    }

    void step(Map<String, Object> step, String place) {
      if (step.get("do") instanceof String what) {
        change(what);
      } else if (step.get("concurrently") instanceof List<?> calls) {
        List<Map<String, Object>> steps = calls.stream().map(Document::object).toList();
        Runnable then = step.get("then") instanceof String what ? () -> change(what) : () -> {};
        List<Object> results =
            together(steps.stream().map(one -> (Supplier<Object>) () -> call(one)).toList(), then);
        for (int index = 0; index < steps.size(); index++) {
          expect(steps.get(index).get("expect"), results.get(index), place + ", call " + index);
        }
      } else if (step.get("concurrently") instanceof Long times) {
        counted(step, times.intValue(), place);
      } else {
        long times = step.get("times") instanceof Long count ? count : 1;
        for (long time = 0; time < times; time++) {
          once(step, place);
        }
      }
    }

    private void change(String what) {
      switch (what) {
        case "freeze" -> server.freeze();
        case "thaw" -> server.thaw();
        case "kill" -> server.kill();
        case "start" -> server.restart();
        case "heal" -> server.heal();
        default -> throw new AssertionError(what + " is not known");
      }
    }

    private void once(Map<String, Object> step, String place) {
      Object expected = step.get("expect");
      long began = System.nanoTime();
      Object result = call(step);
      while (Boolean.TRUE.equals(step.get("until"))
          && !Document.differs(expected, result, "").isEmpty()
          && System.nanoTime() - began < UNTIL_NANOS) {
        result = call(step);
      }
      if (expected != null) {
        expect(expected, result, place);
      }
    }

    private void counted(Map<String, Object> step, int times, String place) {
      List<Object> results =
          together(
              IntStream.range(0, times)
                  .mapToObj(index -> (Supplier<Object>) () -> call(step))
                  .toList(),
              () -> {});
      List<Map<String, Object>> decisions = results.stream().map(Document::object).toList();
      Map<String, Object> counts = new LinkedHashMap<>();
      counts.put(
          "allowed", decisions.stream().filter(one -> one.get("allowed").equals(true)).count());
      counts.put(
          "denied", decisions.stream().filter(one -> one.get("allowed").equals(false)).count());
      counts.put(
          "server", decisions.stream().filter(one -> one.get("source").equals("server")).count());
      counts.put("degraded", decisions.stream().filter(one -> one.containsKey("degraded")).count());
      expect(step.get("count"), counts, place);
    }

    private static List<Object> together(List<Supplier<Object>> calls, Runnable then) {
      ExecutorService threads = Executors.newFixedThreadPool(calls.size());
      try {
        List<CompletableFuture<Object>> running =
            calls.stream().map(call -> CompletableFuture.supplyAsync(call, threads)).toList();
        CompletableFuture.anyOf(running.toArray(CompletableFuture[]::new)).join();
        then.run();
        return running.stream().map(CompletableFuture::join).toList();
      } finally {
        threads.shutdown();
      }
    }

    private static void expect(Object expected, Object result, String place) {
      String said = Document.differs(expected, result, place);
      assertEquals("", said, () -> "expected " + expected + " in " + result);
    }
  }
}
