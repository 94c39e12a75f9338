package io.github.tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tidegate.TestServer;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Whose request it is behind a proxy: whose address Spring takes for the client's. */
class ForwardedTest {
  /** It denies the clients of one network, and nobody else. */
  private static final String POLICY =
      """
      [[policy]]
      name = "network"
      limit = 0
      window_seconds = 3600
      key = ["client_id"]
      match = { client_id = "2001:db8::/64" }
      """;

  /** An application that uses the filter as it is. */
  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @GetMapping("/")
    String fine() {
      return "ok";
    }
  }

  /** Keeps what is said. */
  private static final class Said extends Handler {
    private final List<String> messages = new CopyOnWriteArrayList<>();

    @Override
    public void publish(LogRecord line) {
      messages.add(line.getMessage());
    }

    @Override
    public void flush() {}

    @Override
    public void close() {}
  }

  /** The status of two requests by way of a proxy, and what was said of them. */
  private static List<String> asked(TestServer server, String strategy, List<Integer> statuses)
      throws Exception {
    Logger logger = Logger.getLogger("io.github.tidegate");
    Said said = new Said();
    try (ConfigurableApplicationContext context =
        SpringApplication.run(
            Application.class,
            "--server.port=0",
            "--server.address=127.0.0.1",
            "--server.forward-headers-strategy=" + strategy,
            "--spring.main.banner-mode=off",
            "--logging.level.root=error",
            "--logging.level.io.github.tidegate=warn",
            "--tidegate.url=" + server.url(),
            "--tidegate.deadline=20s")) {
      logger.addHandler(said);
      int port = ((ServletWebServerApplicationContext) context).getWebServer().getPort();
      HttpRequest request =
          HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/"))
              .header("X-Forwarded-For", "2001:db8::1")
              .build();
      for (int time = 0; time < 2; time++) {
        statuses.add(
            HttpClient.newHttpClient()
                .send(request, HttpResponse.BodyHandlers.ofString())
                .statusCode());
      }
      return said.messages;
    } finally {
      logger.removeHandler(said);
    }
  }

  @Test
  void aProxyThatIsNotTrustedIsSaidOnceAndATrustedOnesClientCounts() throws Exception {
    try (TestServer server = TestServer.with(POLICY)) {
      for (String strategy : List.of("none", "native", "framework")) {
        List<Integer> statuses = new CopyOnWriteArrayList<>();
        List<String> said = asked(server, strategy, statuses);
        if (strategy.equals("none")) {
          assertEquals(List.of(200, 200), statuses);
          assertEquals(1, said.size(), said.toString());
          assertTrue(said.get(0).contains("forward-headers-strategy"), said.toString());
        } else {
          assertEquals(List.of(429, 429), statuses, strategy);
          assertEquals(List.of(), said, strategy);
        }
      }
    }
  }
}
