package io.github.tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tidegate.MiddlewareSteps;
import io.github.tidegate.Request;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.Filter;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TidegateFilterTest {
  /** Tomcat tells of each thread that outlives an application, and the client does. */
  private static final Logger TOMCAT = Logger.getLogger("org.apache");

  static {
    TOMCAT.setLevel(Level.SEVERE);
  }

  private static final long UNTIL_NANOS = TimeUnit.SECONDS.toNanos(20);

  /** An application with the routes that clients/conformance.json describes. */
  private static final class Application extends HttpServlet {
    private static final long serialVersionUID = 1L;

    private final boolean async;

    Application(boolean async) {
      this.async = async;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      String path = request.getRequestURI();
      if (path.equals("/endless")) {
        TidegateFilter.settle(request, 1);
        run(request, context -> endless(response));
      } else if (path.equals("/stream")) {
        run(
            request,
            context -> {
              stream(request, response);
              if (context != null) {
                context.complete();
              }
            });
      } else {
        response.getOutputStream().print("ok");
      }
    }

    private void run(HttpServletRequest request, Consumer<AsyncContext> reply) {
      if (async) {
        AsyncContext context = request.startAsync();
        context.start(() -> reply.accept(context));
      } else {
        reply.accept(null);
      }
    }

    /** Until its client has gone. Nothing completes it then: that is the container's. */
    private static void endless(HttpServletResponse response) {
      try {
        ServletOutputStream output = response.getOutputStream();
        while (true) {
          output.write("piece\n".getBytes(StandardCharsets.UTF_8));
          output.flush();
        }
      } catch (IOException gone) {
        throw new UncheckedIOException(gone);
      }
    }

    private static void stream(HttpServletRequest request, HttpServletResponse response) {
      try {
        ServletOutputStream output = response.getOutputStream();
        for (int piece = 0; piece < 10; piece++) {
          output.write("piece\n".getBytes(StandardCharsets.UTF_8));
          output.flush();
        }
        TidegateFilter.settle(request, 1);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  private static TidegateFilter filter(Tidegate client) {
    return new TidegateFilter(client)
        .attributes(
            request ->
                MiddlewareSteps.attributes(
                    request.getParameter("resource"), request.getParameter("tenant")))
        .key(request -> request.getHeader("x-client"))
        .cost(
            request ->
                request.getParameter("cost") == null
                    ? 1
                    : Long.parseLong(request.getParameter("cost")))
        .skip(request -> request.getRequestURI().equals("/health"));
  }

  private static void run(Path folder, boolean async) throws Exception {
    try (TestServer server = TestServer.conformance();
        Tidegate client = MiddlewareSteps.client(server)) {
      behind(
          filter(client),
          new Application(async),
          folder,
          port -> MiddlewareSteps.run("http://127.0.0.1:" + port, server));
    }
  }

  /** What is done with an application at a port. */
  @FunctionalInterface
  private interface Use {
    void of(int port) throws Exception;
  }

  private static void behind(Filter filter, HttpServlet application, Path folder, Use use)
      throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setPort(0);
    // Else Tomcat refuses escaped slashes before any filter.
    tomcat.getConnector().setEncodedSolidusHandling("passthrough");
    Context context = tomcat.addContext("", folder.toString());
    Tomcat.addServlet(context, "application", application).setAsyncSupported(true);
    context.addServletMappingDecoded("/*", "application");
    add(context, filter);
    tomcat.start();
    try {
      use.of(tomcat.getConnector().getLocalPort());
    } finally {
      tomcat.stop();
      tomcat.destroy();
    }
  }

  @Test
  void sendsThePathAsTheRequestHasIt(@TempDir Path folder) throws Exception {
    List<String> found = new ArrayList<>();
    Filter looks =
        (request, response, chain) -> found.add(TidegateFilter.path((HttpServletRequest) request));
    List<Object> expected = new ArrayList<>();
    behind(
        looks,
        new Application(false),
        folder,
        port -> {
          for (Map<String, Object> one : MiddlewareSteps.paths()) {
            expected.add(one.get("sent"));
            try (Socket socket = new Socket("127.0.0.1", port)) {
              // As it is: URI would refuse or rewrite some.
              String asked = "GET " + one.get("target") + " HTTP/1.0\r\n\r\n";
              socket.getOutputStream().write(asked.getBytes(StandardCharsets.US_ASCII));
              socket.getInputStream().readAllBytes();
            }
          }
        });
    assertEquals(expected, found);
  }

  private static void add(Context context, Filter filter) {
    FilterDef definition = new FilterDef();
    definition.setFilterName("tidegate");
    definition.setFilter(filter);
    definition.setAsyncSupported("true");
    context.addFilterDef(definition);
    FilterMap everything = new FilterMap();
    everything.setFilterName("tidegate");
    everything.addURLPattern("/*");
    context.addFilterMap(everything);
  }

  @Test
  void limitsAsAllMiddlewaresDo(@TempDir Path folder) throws Exception {
    run(folder, false);
  }

  @Test
  void settlesAtTheEndOfAsynchronousResponses(@TempDir Path folder) throws Exception {
    run(folder, true);
  }

  private static void leaves(Path folder, boolean async) throws Exception {
    try (TestServer server = TestServer.conformance();
        Tidegate client = MiddlewareSteps.client(server)) {
      behind(
          filter(client),
          new Application(async),
          folder,
          port -> {
            try (Socket socket = new Socket("127.0.0.1", port)) {
              String asked = "GET /endless?cost=3 HTTP/1.1\r\nhost: x\r\nx-client: gone\r\n\r\n";
              socket.getOutputStream().write(asked.getBytes(StandardCharsets.US_ASCII));
              StringBuilder received = new StringBuilder();
              while (received.indexOf("piece") < 0) {
                received.append((char) socket.getInputStream().read());
              }
            }
            // Of the three units that it reserved one was used.
            Request who = Request.of(Map.of("client_id", "gone", "resource", "three")).cost(0);
            long began = System.nanoTime();
            while (client.allow(who).remaining().orElse(0) != 2) {
              assertTrue(System.nanoTime() - began < UNTIL_NANOS, "nothing is given back");
            }
          });
    }
  }

  @Test
  void aClientThatGoesAwayInTheMiddleSettlesToo(@TempDir Path folder) throws Exception {
    leaves(folder, false);
  }

  @Test
  void aClientThatGoesAwayFromAnAsynchronousResponseSettlesToo(@TempDir Path folder)
      throws Exception {
    leaves(folder, true);
  }

  @Test
  void aLeakyBucketHoldsRequestsBack(@TempDir Path folder) throws Exception {
    String leaky =
        """
        [[policy]]
        name = "leaky"
        algorithm = "leaky_bucket"
        limit = 100
        window_seconds = 10
        burst = 10
        key = ["client_id"]
        """;
    try (TestServer server = TestServer.with(leaky);
        Tidegate client =
            Tidegate.create(
                options -> options.url(server.url()).deadline(Duration.ofSeconds(10)))) {
      behind(
          new TidegateFilter(client),
          new Application(false),
          folder,
          port -> {
            HttpClient http = HttpClient.newHttpClient();
            HttpRequest request =
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port)).build();
            long began = System.nanoTime();
            for (int asked = 0; asked < 4; asked++) {
              HttpResponse<String> response =
                  http.send(request, HttpResponse.BodyHandlers.ofString());
              assertEquals(200, response.statusCode());
            }
            // Ten a second leave the bucket: the fourth waits for three before it.
            assertTrue(System.nanoTime() - began >= TimeUnit.MILLISECONDS.toNanos(300));
          });
    }
  }
}
