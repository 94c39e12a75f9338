package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The example of README.md, as its reader would try it: on the installed jar, up to a 429. */
class ReadmeTest {
  private static final long BOUND_NANOS = TimeUnit.SECONDS.toNanos(60);

  @Test
  void theExampleEndsInA429WithinAMinute(@TempDir Path folder) throws Exception {
    long began = System.nanoTime();
    Path jar = Path.of(Tidegate.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    String name = jar.getFileName().toString();
    assertTrue(name.endsWith(".jar"), "the client is no jar: " + jar);
    for (String kind : new String[] {"-sources.jar", "-javadoc.jar"}) {
      Path beside = jar.resolveSibling(name.replace(".jar", kind));
      assertTrue(Files.exists(beside), beside + " is not installed");
    }
    try (FileSystem inside = FileSystems.newFileSystem(jar)) {
      String licence = Files.readString(inside.getPath("META-INF/LICENSE"));
      assertEquals(Files.readString(TestServer.root().resolve("LICENSE")), licence);
    }
    String readme = Files.readString(TestServer.root().resolve("clients/java/README.md"));
    String begin = "<!-- run by example/ -->\n```java\n";
    int from = readme.indexOf(begin) + begin.length();
    String address = TestServer.nobody();
    String port = address.substring(address.lastIndexOf(':') + 1);
    String program = readme.substring(from, readme.indexOf("```\n", from)).replace("8080", port);
    assertTrue(program.contains(port), "README.md has no example that listens on port 8080");
    Path source = Files.writeString(folder.resolve("Hello.java"), program);
    try (TestServer server = TestServer.with("# The defaults: 100 requests a minute for each client.\n")) {
      ProcessBuilder hello =
          new ProcessBuilder("java", "-cp", jar.toString(), source.toString()).inheritIO();
      hello.environment().put("TIDEGATE_URL", server.url());
      Process process = hello.start();
      try {
        ask(address);
      } finally {
        process.destroyForcibly();
      }
    }
    assertTrue(System.nanoTime() - began < BOUND_NANOS, "it took longer than a minute");
  }

  /**
   * Without the server a request is allowed, and on a busy machine one may take longer than 50 ms: so the 101st may not
   * be the one, but one soon after it is.
   */
  private static void ask(String address) throws IOException, InterruptedException {
    HttpClient http = HttpClient.newHttpClient();
    HttpRequest request = HttpRequest.newBuilder(URI.create(address + "/")).build();
    long began = System.nanoTime();
    for (int asked = 0; asked < 1000; ) {
      HttpResponse<String> response;
      try {
        response = http.send(request, HttpResponse.BodyHandlers.ofString());
      } catch (ConnectException notYet) {
        assertTrue(System.nanoTime() - began < BOUND_NANOS, "the example does not listen");
        continue;
      }
      if (response.statusCode() == 429) {
        assertTrue(asked >= 100, "request " + (asked + 1) + " of 100 is denied");
        assertTrue(response.headers().firstValue("retry-after").isPresent());
        return;
      }
      assertEquals("hello\n", response.body());
      asked++;
    }
    throw new AssertionError("1,000 requests and no denial");
  }
}
