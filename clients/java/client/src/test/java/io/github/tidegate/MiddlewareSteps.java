package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The steps of clients/conformance.json for a middleware, against an application that a test has
 * started.
 */
public final class MiddlewareSteps {
  private static final long UNTIL_NANOS = TimeUnit.SECONDS.toNanos(20);

  private MiddlewareSteps() {}

  /** A client of the server of the conformance cases. */
  public static Tidegate client(TestServer server) {
    return Tidegate.create(
        options ->
            options.url(server.url()).token("conformance-token").deadline(Duration.ofSeconds(2)));
  }

  /** The attributes of a request with these query parameters, null if it has none. */
  public static Map<String, String> attributes(String resource, String tenant) {
    Map<String, String> attributes = new LinkedHashMap<>();
    attributes.put("resource", resource == null ? "three" : resource);
    attributes.put("client_id", tenant);
    return attributes;
  }

  /** Targets of requests, and the path that is sent of each. */
  public static List<Map<String, Object>> paths() {
    return Document.list(Document.read().get("paths")).stream().map(Document::object).toList();
  }

  /** Runs them against an application at an address, whose middleware asks the server. */
  public static void run(String application, TestServer server)
      throws IOException, InterruptedException {
    HttpClient http = HttpClient.newHttpClient();
    int index = 0;
    for (Object item :
        Document.list(Document.object(Document.read().get("middleware")).get("steps"))) {
      Map<String, Object> step = Document.object(item);
      if (step.containsKey("do")) {
        if (step.get("do").equals("freeze")) {
          server.freeze();
        } else {
          server.thaw();
        }
      } else {
        long times = step.get("times") instanceof Long count ? count : 1;
        for (long time = 0; time < times; time++) {
          once(http, application, step, "step " + index);
        }
      }
      index++;
    }
  }

  private static void once(
      HttpClient http, String application, Map<String, Object> step, String place)
      throws IOException, InterruptedException {
    Object expected = step.get("expect");
    long began = System.nanoTime();
    Map<String, Object> result = ask(http, application, step);
    while (Boolean.TRUE.equals(step.get("until"))
        && !Document.differs(expected, result, "").isEmpty()
        && System.nanoTime() - began < UNTIL_NANOS) {
      result = ask(http, application, step);
    }
    assertEquals(
        "", Document.differs(expected, result, place), "expected " + expected + " in " + result);
  }

  private static Map<String, Object> ask(
      HttpClient http, String application, Map<String, Object> step)
      throws IOException, InterruptedException {
    HttpRequest.Builder request =
        HttpRequest.newBuilder(URI.create(application + step.get("path")));
    if (step.containsKey("client")) {
      request.header("x-client", Document.text(step.get("client")));
    }
    Document.object(step.get("headers"))
        .forEach((name, value) -> request.header(name, (String) value));
    HttpResponse<String> response =
        http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    Map<String, Object> result = new LinkedHashMap<>();
    response.headers().map().forEach((name, values) -> result.put(name, values.get(0)));
    response
        .headers()
        .firstValue("retry-after")
        .ifPresent(seconds -> result.put("retry-after", Long.valueOf(seconds)));
    // Servers may say of which character set it is.
    response
        .headers()
        .firstValue("content-type")
        .ifPresent(type -> result.put("content-type", type.split(";", 2)[0]));
    result.put("status", (long) response.statusCode());
    result.put("body", response.body());
    Document.json(response.body()).ifPresent(problem -> result.put("problem", problem));
    return result;
  }
}
