package io.github.tidegate.servlet;

import io.github.tidegate.MiddlewareSteps;
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
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
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
      if (!request.getRequestURI().equals("/stream")) {
        response.getOutputStream().print("ok");
      } else if (async) {
        AsyncContext context = request.startAsync();
        context.start(
            () -> {
              stream(request, response);
              context.complete();
            });
      } else {
        stream(request, response);
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
        .attributes(request -> Map.of("resource", "three"))
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
      Tomcat tomcat = new Tomcat();
      tomcat.setBaseDir(folder.toString());
      tomcat.setPort(0);
      Context context = tomcat.addContext("", folder.toString());
      Tomcat.addServlet(context, "application", new Application(async)).setAsyncSupported(true);
      context.addServletMappingDecoded("/*", "application");
      add(context, filter(client));
      tomcat.start();
      try {
        MiddlewareSteps.run("http://127.0.0.1:" + tomcat.getConnector().getLocalPort(), server);
      } finally {
        tomcat.stop();
        tomcat.destroy();
      }
    }
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
}
