package io.github.tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tidegate.Decision;
import io.github.tidegate.Event;
import io.github.tidegate.MiddlewareSteps;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import io.github.tidegate.servlet.TidegateFilter;
import jakarta.servlet.http.HttpServletRequest;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

class TidegateAutoConfigurationTest {
  private static final List<Event> EVENTS = new CopyOnWriteArrayList<>();

  /** An application with the routes that clients/conformance.json describes. */
  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @GetMapping({"/", "/health"})
    String fine() {
      return "ok";
    }

    @GetMapping("/stream")
    StreamingResponseBody stream(HttpServletRequest request) {
      return output -> {
        for (int piece = 0; piece < 10; piece++) {
          output.write("piece\n".getBytes(StandardCharsets.UTF_8));
          output.flush();
        }
        TidegateFilter.settle(request, 1);
      };
    }

    @Bean
    TidegateFilter filter(Tidegate client) {
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

    @Bean
    TidegateOptions events() {
      return options -> options.onEvent(EVENTS::add);
    }
  }

  private static ConfigurableApplicationContext start(String url, String... more) {
    String[] properties = {
      "--server.port=0",
      "--server.address=127.0.0.1",
      "--spring.main.banner-mode=off",
      "--logging.level.root=warn",
      "--tidegate.url=" + url,
      "--tidegate.token=conformance-token"
    };
    String[] all =
        java.util.stream.Stream.of(properties, more)
            .flatMap(java.util.Arrays::stream)
            .toArray(String[]::new);
    return SpringApplication.run(Application.class, all);
  }

  @Test
  void limitsAsAllMiddlewaresDo() throws Exception {
    try (TestServer server = TestServer.conformance();
        ConfigurableApplicationContext context = start(server.url(), "--tidegate.deadline=2s")) {
      int port = ((ServletWebServerApplicationContext) context).getWebServer().getPort();
      MiddlewareSteps.run("http://127.0.0.1:" + port, server);
      assertTrue(EVENTS.stream().anyMatch(event -> event.operation().equals("refund")));
    }
  }

  @Test
  void propertiesAreTheClientsOptions() {
    try (ConfigurableApplicationContext context =
        start(
            TestServer.nobody(),
            "--tidegate.on-failure=local",
            "--tidegate.fallback.limit=4",
            "--tidegate.fallback.window=1h",
            "--tidegate.fallback.share=0.5",
            "--tidegate.filter.enabled=false")) {
      Decision decision = context.getBean(Tidegate.class).allow(Map.of("client_id", "a"));
      assertEquals("local", decision.degraded().orElseThrow());
      assertEquals(2, decision.limit().orElseThrow());
    }
  }
}
