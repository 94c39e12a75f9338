package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What a middleware answers, and what a client of a limited API waits. */
class OtherSideTest {
  private static final HttpResponse.BodyHandler<Void> NOTHING =
      HttpResponse.BodyHandlers.discarding();

  private static HttpHeaders headers(Map<String, Object> fields) {
    Map<String, List<String>> lines = new LinkedHashMap<>();
    fields.forEach((name, value) -> lines.put(name, List.of((String) value)));
    return HttpHeaders.of(lines, (name, value) -> true);
  }

  @Test
  void waitsAsItIsTold() {
    for (Object item : Document.list(Document.read().get("waits"))) {
      Map<String, Object> one = Document.object(item);
      long wait =
          Pace.told(
                  ((Long) one.get("status")).intValue(),
                  headers(Document.object(one.get("fields"))),
                  0)
              .nanos();
      if (one.get("max_wait_s") instanceof Long longest) {
        wait = Math.min(wait, TimeUnit.SECONDS.toNanos(longest));
      }
      assertEquals(TimeUnit.SECONDS.toNanos((Long) one.get("wait_s")), wait, one.toString());
    }
    ZonedDateTime date = ZonedDateTime.of(2026, 11, 22, 12, 0, 4, 0, ZoneOffset.UTC);
    Map<String, Object> field =
        Map.of("retry-after", date.format(DateTimeFormatter.RFC_1123_DATE_TIME));
    assertEquals(
        TimeUnit.SECONDS.toNanos(4),
        Pace.told(429, headers(field), date.minusSeconds(4).toInstant().toEpochMilli()).nanos());
  }

  @Test
  void deniesAsAllMiddlewaresDo() throws Json.Malformed {
    for (Object item : Document.list(Document.read().get("denials"))) {
      Map<String, Object> one = Document.object(item);
      Map<String, Object> given = Document.object(one.get("decision"));
      Decision decision = decision(given);
      Denial denial =
          decision.allowed()
              ? new Denial(200, Denial.described(decision), "{}")
              : Denial.of(decision);
      Map<String, Object> fields = new LinkedHashMap<>();
      denial
          .fields()
          .forEach((name, value) -> fields.put(name.toLowerCase(java.util.Locale.ROOT), value));
      String what = (String) one.get("what");
      assertEquals(one.get("status"), (long) denial.status(), what);
      assertEquals("", Document.differs(one.get("fields"), fields, what));
      if (one.containsKey("problem")) {
        assertEquals(
            "",
            Document.differs(one.get("problem"), Document.json(denial.body()).orElseThrow(), what));
      }
    }
  }

  private static Decision decision(Map<String, Object> given) throws Json.Malformed {
    Decision read = Decision.read(given);
    Optional<Failure> failure =
        given.containsKey("failure") ? Optional.of(Failure.TIMEOUT) : Optional.empty();
    return new Decision(
        read.allowed(),
        read.noMatch(),
        read.policy(),
        read.limit(),
        read.remaining(),
        read.retryAfter(),
        read.retryAfterMs(),
        read.resetMs(),
        OptionalLong.empty(),
        read.degraded(),
        Optional.empty(),
        read.policies(),
        given.get("source").equals("server") ? Decision.Source.SERVER : Decision.Source.FALLBACK,
        failure,
        Optional.ofNullable((String) given.get("rate_limit_policy")),
        Optional.ofNullable((String) given.get("rate_limit")));
  }

  private static String sent(PacedHttpClient client, HttpRequest request, boolean async)
      throws Exception {
    HttpResponse<Void> response =
        async ? client.sendAsync(request, NOTHING).get() : client.send(request, NOTHING);
    return response.statusCode()
        + " from request "
        + response.headers().firstValue("x-number").orElseThrow();
  }

  @Test
  void repeatsWhatChangesNothingAfterTheWait() throws Exception {
    for (boolean async : new boolean[] {false, true}) {
      try (TestServer server = TestServer.fault("denied_then_ok")) {
        PacedHttpClient client = PacedHttpClient.of(HttpClient.newHttpClient());
        long began = System.nanoTime();
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url())).build();
        assertEquals("200 from request 2", sent(client, request, async));
        assertTrue(System.nanoTime() - began >= TimeUnit.SECONDS.toNanos(1));
      }
    }
  }

  @Test
  void neverRepeatsWhatIsUnsafe() throws Exception {
    for (boolean async : new boolean[] {false, true}) {
      try (TestServer server = TestServer.fault("denied_then_ok")) {
        PacedHttpClient client = PacedHttpClient.of(HttpClient.newHttpClient());
        HttpRequest request =
            HttpRequest.newBuilder(URI.create(server.url()))
                .POST(HttpRequest.BodyPublishers.ofString("pay=1"))
                .build();
        assertEquals("429 from request 1", sent(client, request, async));
      }
    }
  }

  @Test
  void returnsADenialForLongerThanItWaits() throws Exception {
    try (TestServer server = TestServer.fault("denied_for_long")) {
      PacedHttpClient client = PacedHttpClient.of(HttpClient.newHttpClient());
      HttpRequest request = HttpRequest.newBuilder(URI.create(server.url())).build();
      assertEquals("429 from request 1", sent(client, request, false));
    }
  }

  @Test
  void waitsBeforeTheNextRequestWhereNothingIsLeft() throws Exception {
    for (boolean async : new boolean[] {false, true}) {
      try (TestServer server = TestServer.fault("spent")) {
        PacedHttpClient client = PacedHttpClient.of(HttpClient.newHttpClient());
        long began = System.nanoTime();
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url())).build();
        assertEquals("200 from request 1", sent(client, request, async));
        assertEquals("200 from request 2", sent(client, request, async));
        assertTrue(System.nanoTime() - began >= TimeUnit.SECONDS.toNanos(1));
      }
    }
  }

  /** When requests leave that come all at once, after these responses. */
  private static List<Long> departures(Map<String, Object> one) {
    Pace pace = new Pace(TimeUnit.SECONDS.toNanos((Long) one.getOrDefault("max_wait_s", 60L)));
    for (Object item : Document.list(one.get("responses"))) {
      Map<String, Object> response = Document.object(item);
      int status = ((Long) response.get("status")).intValue();
      HttpHeaders fields = headers(Document.object(response.get("fields")));
      pace.learn("a", Pace.told(status, fields, 0), 0);
    }
    return Stream.generate(() -> pace.departure("a", 0))
        .limit(Document.list(one.get("at_least_s")).size())
        .toList();
  }

  @Test
  void thoseThatWaitLeaveAsInAllLanguages() {
    for (Object item : Document.list(Document.read().get("departures"))) {
      Map<String, Object> one = Document.object(item);
      List<?> least = Document.list(one.get("at_least_s"));
      List<?> most = Document.list(one.get("at_most_s"));
      Set<Long> firsts = new HashSet<>();
      for (int time = 0; time < 20; time++) {
        List<Long> waits = departures(one);
        firsts.add(waits.get(0));
        for (int index = 0; index < waits.size(); index++) {
          long wait = waits.get(index);
          assertTrue(
              wait >= TimeUnit.SECONDS.toNanos((Long) least.get(index))
                  && wait <= TimeUnit.SECONDS.toNanos((Long) most.get(index)),
              one.get("what") + ": " + waits);
        }
      }
      assertEquals(
          !least.get(0).equals(most.get(0)), firsts.size() > 1, one.get("what").toString());
    }
  }

  @Test
  void forgetsTheOriginThatIsUnusedForLongest() {
    Pace pace = new Pace(Duration.ofMinutes(1).toNanos());
    Pace.Wait second = new Pace.Wait(TimeUnit.SECONDS.toNanos(1), false);
    pace.learn("a", second, 0);
    for (int index = 0; index < Pace.MAX_ORIGINS; index++) {
      pace.learn("origin" + index, second, 0);
    }
    assertEquals(0, pace.departure("a", 0));
  }

  /** Thirty requests where twenty are admitted at once, and ten a second after that. */
  @Test
  void keepsWithinALimitOfTheRealServer() throws Exception {
    String config = (String) Document.object(Document.read().get("paced")).get("config");
    try (TestServer server = TestServer.with(config)) {
      PacedHttpClient client = PacedHttpClient.of(HttpClient.newHttpClient());
      HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/v1/check")).build();
      long began = System.nanoTime();
      for (int index = 0; index < 30; index++) {
        assertEquals(204, client.send(request, NOTHING).statusCode());
      }
      assertTrue(System.nanoTime() - began >= TimeUnit.SECONDS.toNanos(1));
    }
  }
}
