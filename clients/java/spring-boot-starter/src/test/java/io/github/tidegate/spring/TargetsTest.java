package io.github.tidegate.spring;

import io.github.tidegate.Targets;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import io.github.tidegate.servlet.TidegateFilter;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.config.annotation.PathMatchConfigurer;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.util.pattern.PathPatternParser;

class TargetsTest {
  /** An application as Spring makes it. */
  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @RequestMapping({"/pay", "/api/pay"})
    String pay() {
      return Targets.REACHED;
    }

    @Bean
    TidegateFilter filter(Tidegate client, @Value("${name}") String name) {
      return new TidegateFilter(client)
          .key(request -> name)
          .skip(request -> request.getHeader(Targets.SKIP) != null);
    }
  }

  /** One that ignores case. */
  @Configuration(proxyBeanMethods = false)
  @RestController
  static class Lenient extends Application implements WebMvcConfigurer {
    @Override
    public void configurePathMatch(PathMatchConfigurer configurer) {
      PathPatternParser parser = new PathPatternParser();
      parser.setCaseSensitive(false);
      configurer.setPatternParser(parser);
    }
  }

  private static ConfigurableApplicationContext start(
      Class<?> application, String url, String name, String context) {
    return SpringApplication.run(
        application,
        "--server.port=0",
        "--server.address=127.0.0.1",
        "--server.servlet.context-path=" + context,
        "--spring.main.banner-mode=off",
        "--logging.level.root=error",
        "--name=" + name,
        "--tidegate.url=" + url,
        "--tidegate.deadline=20s");
  }

  private static int port(ConfigurableApplicationContext context) {
    return ((ServletWebServerApplicationContext) context).getWebServer().getPort();
  }

  private static void run(String framework, Class<?> application) throws Exception {
    try (TestServer server = TestServer.with(Targets.config());
        ConfigurableApplicationContext root = start(application, server.url(), "root", "");
        ConfigurableApplicationContext mounted =
            start(application, server.url(), "mounted", "/api")) {
      Targets.run(framework, port(root), port(mounted));
    }
  }

  @Test
  void noTargetReachesAHandlerUncounted() throws Exception {
    run("spring", Application.class);
  }

  @Test
  void noTargetReachesAHandlerUncountedWhereCaseIsIgnored() throws Exception {
    run("spring-lenient", Lenient.class);
  }
}
