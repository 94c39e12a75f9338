package io.github.tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.tidegate.Request;
import io.github.tidegate.Targets;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TargetsTest {
  private static final Logger TOMCAT = Logger.getLogger("org.apache");

  static {
    TOMCAT.setLevel(Level.SEVERE);
  }

  /** Answers every method, and allows some to other origins where it is below /cors. */
  private static final class Pay extends HttpServlet {
    private static final long serialVersionUID = 1L;

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      if (request.getServletPath().equals("/cors")) {
        response.setHeader("Access-Control-Allow-Methods", "POST");
      }
      response.getOutputStream().print(Targets.REACHED);
    }
  }

  private static Tomcat tomcat(TidegateFilter filter, Path folder, boolean mounted, boolean lenient)
      throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setPort(0);
    Connector connector = tomcat.getConnector();
    if (lenient) {
      connector.setEncodedSolidusHandling("decode");
      connector.setAllowBackslash(true);
      connector.setProperty("relaxedPathChars", "\\\"<>[]^`{|}");
    }
    Context context = tomcat.addContext(mounted ? "/api" : "", folder.toString());
    Tomcat.addServlet(context, "pay", new Pay());
    for (String path :
        mounted ? new String[] {"/pay"} : new String[] {"/pay", "/api/pay", "/cors"}) {
      context.addServletMappingDecoded(path, "pay");
    }
    FilterDef definition = new FilterDef();
    definition.setFilterName("tidegate");
    definition.setFilter(filter);
    context.addFilterDef(definition);
    FilterMap everything = new FilterMap();
    everything.setFilterName("tidegate");
    everything.addURLPattern("/*");
    context.addFilterMap(everything);
    tomcat.start();
    return tomcat;
  }

  private static void stop(Tomcat tomcat) throws Exception {
    tomcat.stop();
    tomcat.destroy();
  }

  private static void run(String name, Path folder, boolean lenient) throws Exception {
    try (TestServer server = TestServer.with(Targets.config());
        Tidegate client =
            Tidegate.create(
                options -> options.url(server.url()).deadline(Duration.ofSeconds(20)))) {
      Tomcat root = tomcat(filter(client, "root"), folder, false, lenient);
      Tomcat mounted = tomcat(filter(client, "mounted"), folder, true, lenient);
      try {
        Targets.run(
            name, root.getConnector().getLocalPort(), mounted.getConnector().getLocalPort());
      } finally {
        stop(root);
        stop(mounted);
      }
    }
  }

  private static TidegateFilter filter(Tidegate client, String name) {
    return new TidegateFilter(client)
        .key(request -> name)
        .skip(request -> request.getHeader(Targets.SKIP) != null);
  }

  @Test
  void noTargetReachesAHandlerUncounted(@TempDir Path folder) throws Exception {
    run("tomcat", folder, false);
  }

  @Test
  void noTargetReachesAHandlerUncountedWhereEscapedSlashesAreSlashes(@TempDir Path folder)
      throws Exception {
    run("tomcat-lenient", folder, true);
  }

  @Test
  void onlyAPreflightThatTheApplicationsCorsAnswersIsGivenBack(@TempDir Path folder)
      throws Exception {
    String ten =
        """
        [[policy]]
        name = "ten"
        algorithm = "fixed_window"
        limit = 10
        window_seconds = 86400
        key = ["client_id"]
        """;
    try (TestServer server = TestServer.with(ten);
        Tidegate client =
            Tidegate.create(
                options -> options.url(server.url()).deadline(Duration.ofSeconds(20)))) {
      Tomcat tomcat = tomcat(filter(client, "a"), folder, false, false);
      try {
        int port = tomcat.getConnector().getLocalPort();
        String preflight = "Origin: http://shop.example\r\nAccess-Control-Request-Method: POST\r\n";
        options(port, "/pay", preflight);
        options(port, "/cors", "");
        options(port, "/cors", preflight);
        Request who = Request.of(Map.of("client_id", "a")).cost(0);
        long began = System.nanoTime();
        while (client.allow(who).remaining().orElse(0) != 8) {
          long waited = System.nanoTime() - began;
          assertEquals(0, waited / Duration.ofSeconds(20).toNanos(), "it is not given back");
        }
      } finally {
        stop(tomcat);
      }
    }
  }

  private static void options(int port, String path, String fields) throws IOException {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      String text =
          "OPTIONS " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields + "\r\n";
      socket.getOutputStream().write(text.getBytes(StandardCharsets.US_ASCII));
      socket.getInputStream().readAllBytes();
    }
  }
}
