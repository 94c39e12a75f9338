package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/**
 * The recipes of clients/RECIPES.md: their policies on the real server, and their code as it stands
 * there.
 */
class RecipesTest {
  private static final String NOBODY = "http://127.0.0.1:1";

  private final List<String> sent = Collections.synchronizedList(new ArrayList<>());
  private Tidegate working;
  private boolean hasFailed;

  // What the application has.

  record Customer(String name, String tier) {}

  record Reply(String text, long used) {}

  private static boolean verify(String account, String password) {
    return !account.isEmpty() && password.equals("right");
  }

  private static Customer lookUp(String apiKey) {
    return apiKey.equals("k1") ? new Customer("acme", "free") : new Customer("apex", "pro");
  }

  private static long count(String prompt) {
    return prompt.length();
  }

  private static Reply generate(String prompt, long maxTokens) {
    if (prompt.equals("broken")) {
      throw new IllegalStateException(prompt);
    }
    return new Reply("about " + prompt, Math.min(maxTokens, 100));
  }

  private void post(String receiver, String body) {
    sent.add(receiver + body);
  }

  private void work(String job, Supplier<Optional<Duration>> renew) {
    assertTrue(renew.get().isPresent());
    assertEquals("another runs it", run(working, job));
    if (job.equals("broken") && !hasFailed) {
      hasFailed = true;
      throw new IllegalStateException(job);
    }
  }

  // The recipes.

  // limits has .onFailure(Options.OnFailure.CLOSED).
  String login(Tidegate limits, String account, String ip, String password) {
    Request who =
        Request.of(
            Map.of("action", "login", "account", account.toLowerCase(Locale.ROOT), "ip", ip));
    Decision decision = limits.allow(who);
    if (!decision.allowed()) {
      return "try again in " + decision.retryAfter().orElse(1) + " s";
    }
    if (!verify(account, password)) {
      return "wrong";
    }
    limits.refund(who);
    return "welcome";
  }

  Decision call(Tidegate limits, String apiKey) {
    Customer customer = lookUp(apiKey);
    return limits.allow(Map.of("client_id", customer.name(), "tier", customer.tier()));
  }

  String complete(Tidegate limits, String customer, String prompt, long maxTokens) {
    Request tokens = Request.of(Map.of("client_id", customer, "unit", "tokens"));
    Request requests = Request.of(Map.of("client_id", customer, "unit", "requests"));
    try (Permit permit = limits.acquire(requests)) {
      if (!permit.decision().allowed()) {
        return "too many requests at once";
      }
      Charge charge = limits.reserve(tokens.cost(count(prompt) + maxTokens));
      Decision decision = charge.decision();
      if (!decision.allowed()) {
        boolean fits = decision.retryAfterMs().isPresent();
        return fits ? "wait " + decision.retryAfter().orElse(1) + " s" : "too long";
      }
      long used = 0;
      try {
        Reply reply = generate(prompt, maxTokens);
        used = reply.used();
        return reply.text();
      } finally {
        charge.settle(used); // the rest comes back
      }
    }
  }

  /** Delivers, or says in how many milliseconds to try again. */
  long deliver(Tidegate limits, String receiver, String body) throws InterruptedException {
    Decision decision = limits.allow(Map.of("action", "webhook", "receiver", receiver));
    if (!decision.allowed()) {
      return decision.retryAfterMs().orElse(60_000);
    }
    Thread.sleep(decision.delayMs().orElse(0));
    post(receiver, body);
    return 0;
  }

  // limits has .onFailure(Options.OnFailure.CLOSED).
  String run(Tidegate limits, String job) {
    try (Permit permit = limits.acquire(Request.of(Map.of("action", "cron", "job", job)))) {
      if (!permit.decision().allowed()) {
        return "another runs it";
      }
      Request once = Request.of(Map.of("action", "cron-run", "job", job));
      if (!limits.allow(once).allowed()) {
        return "done today";
      }
      try {
        work(job, permit::renew);
      } catch (RuntimeException failed) {
        limits.refund(once);
        throw failed;
      }
      return "ran";
    }
  }

  // And what they do.

  private static String page() throws Exception {
    return Files.readString(TestServer.root().resolve("clients/RECIPES.md"));
  }

  private static List<String> blocks(String language) throws Exception {
    Pattern fenced =
        Pattern.compile("^```" + language + "\n(.*?)^```", Pattern.MULTILINE | Pattern.DOTALL);
    return fenced.matcher(page()).results().map(found -> found.group(1)).toList();
  }

  /** A server with the policies of all recipes. */
  private static TestServer server() throws Exception {
    return TestServer.with(String.join("\n", blocks("toml")));
  }

  private static Tidegate client(String url) {
    return Tidegate.create(
        options ->
            options
                .url(url)
                .onFailure(Options.OnFailure.CLOSED)
                // For a busy machine.
                .deadline(Duration.ofSeconds(10)));
  }

  private static void matches(String pattern, String said) {
    Matcher matcher = Pattern.compile(pattern).matcher(said);
    assertTrue(matcher.matches(), said);
  }

  private static String bare(String code) {
    return code.replaceAll("\\s", "");
  }

  @Test
  void theRecipesAreThoseOfThePage() throws Exception {
    Path file =
        TestServer.root()
            .resolve("clients/java/client/src/test/java/io/github/tidegate/RecipesTest.java");
    String source = bare(Files.readString(file));
    List<String> shown = blocks("java");
    assertEquals(5, shown.size());
    for (String block : shown) {
      assertTrue(
          source.contains(bare(block)), "RecipesTest has not what RECIPES.md shows: " + block);
    }
  }

  @Test
  void aLoginCountsFailuresOnly() throws Exception {
    try (TestServer server = server();
        Tidegate limits = client(server.url());
        Tidegate alone = client(NOBODY)) {
      for (int n = 0; n < 7; n++) {
        assertEquals("welcome", login(limits, "Ann", "10.0.0.1", "right"));
      }
      for (int n = 0; n < 5; n++) {
        assertEquals("wrong", login(limits, "ann", "10.0.1." + n, "guess"));
      }
      matches("try again in \\d+ s", login(limits, "ANN", "10.0.2.1", "right"));
      for (int n = 0; n < 20; n++) {
        assertEquals("wrong", login(limits, "user" + n, "10.0.3.1", "guess"));
      }
      matches("try again.*", login(limits, "user99", "10.0.3.1", "right"));
      assertEquals("welcome", login(limits, "user99", "10.0.3.2", "right"));
      matches("try again.*", login(alone, "ann", "10.0.0.1", "right"));
    }
  }

  @Test
  void aKeyHasTheLimitOfItsTier() throws Exception {
    try (TestServer server = server();
        Tidegate limits = client(server.url())) {
      for (int n = 0; n < 12; n++) {
        assertEquals(n < 10, call(limits, "k1").allowed());
        Decision pro = call(limits, "k2");
        assertTrue(pro.allowed());
        assertEquals(Optional.of("pro"), pro.policy());
      }
    }
  }

  /** Waits until a customer has so many tokens: others come back while the caller goes on. */
  private static void comesBack(Tidegate limits, String customer, long units) {
    Request none = Request.of(Map.of("client_id", customer, "unit", "tokens")).cost(0).peeking();
    long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
    while (limits.allow(none).remaining().orElse(0) < units) {
      assertTrue(System.nanoTime() < end, () -> "fewer than " + units + ": " + limits.allow(none));
    }
  }

  @Test
  void tokensThatWereNotUsedComeBack() throws Exception {
    try (TestServer server = server();
        Tidegate limits = client(server.url())) {
      for (int n = 1; n <= 3; n++) {
        assertEquals("about tides", complete(limits, "acme", "tides", 9_000));
        comesBack(limits, "acme", 10_000 - 100 * n);
      }
      assertThrows(IllegalStateException.class, () -> complete(limits, "acme", "broken", 9_000));
      comesBack(limits, "acme", 9_700);
      assertEquals("about tides", complete(limits, "acme", "tides", 9_000));
      comesBack(limits, "acme", 9_600);
      assertEquals("too long", complete(limits, "acme", "tides", 20_000));
      Request spent = Request.of(Map.of("client_id", "acme", "unit", "tokens")).cost(9_000);
      assertTrue(limits.allow(spent).allowed());
      matches("wait \\d+ s", complete(limits, "acme", "tides", 9_990));
      Request requests = Request.of(Map.of("client_id", "acme", "unit", "requests"));
      try (Permit one = limits.acquire(requests);
          Permit two = limits.acquire(requests)) {
        assertTrue(one.held() && two.held());
        assertEquals("too many requests at once", complete(limits, "acme", "tides", 10));
      }
      assertEquals("about tides", complete(limits, "acme", "tides", 10));
    }
  }

  @Test
  void webhooksLeaveAtThePaceOfTheirReceiver() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(60);
    try (TestServer server = server();
        Tidegate limits = client(server.url())) {
      Callable<Long> delivery = () -> deliver(limits, "slow.example", "x");
      int now = 0;
      for (Future<Long> wait : threads.invokeAll(Collections.nCopies(60, delivery))) {
        assertTrue(wait.get() >= 0);
        now += wait.get() == 0 ? 1 : 0;
      }
      // The bucket holds 20; ten a second leave it.
      assertTrue(now >= 20 && now < 60, now + " of 60");
      assertEquals(0, deliver(limits, "other.example", "x"));
      assertEquals(now + 1, sent.size());
    } finally {
      threads.shutdown();
    }
  }

  @Test
  void aJobRunsOnceOnOneMachine() throws Exception {
    try (TestServer server = server();
        Tidegate limits = client(server.url());
        Tidegate alone = client(NOBODY)) {
      working = limits;
      assertEquals("ran", run(limits, "report"));
      // It may have become tomorrow meanwhile.
      matches("done today|ran", run(limits, "report"));
      assertThrows(IllegalStateException.class, () -> run(limits, "broken"));
      assertEquals("ran", run(limits, "broken"));
      assertEquals("another runs it", run(alone, "report"));
    }
  }
}
