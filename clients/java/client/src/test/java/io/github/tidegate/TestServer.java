package io.github.tidegate;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A server that a test starts: the real binary, or one that misbehaves. */
public final class TestServer implements AutoCloseable {
  private static final long BOUND_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final Path folder;
  private final Path config;
  private Process process;
  private String url;

  private TestServer(Path folder, Path config) {
    this.folder = folder;
    this.config = config;
  }

  /** The repository's root. */
  public static Path root() {
    Path here = Path.of("").toAbsolutePath();
    while (!Files.exists(here.resolve("clients/conformance.json"))) {
      here = here.getParent();
    }
    return here;
  }

  /** Starts {@code tidegate serve} with the configuration of the conformance cases. */
  public static TestServer conformance() {
    return start(root().resolve("clients/conformance.toml"));
  }

  /** Starts {@code tidegate serve} with the text of a configuration. */
  public static TestServer with(String text) {
    try {
      return start(Files.writeString(Files.createTempFile("tidegate", ".toml"), text));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static TestServer start(Path config) {
    try {
      TestServer server = new TestServer(Files.createTempDirectory("tidegate"), config);
      server.run("127.0.0.1:0");
      return server;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Starts a server that misbehaves as clients/conformance.json says. */
  public static TestServer fault(String name) {
    TestServer server = new TestServer(null, null);
    String script = root().resolve("clients/faulty.py").toString();
    server.begin(List.of("python3", script, name), Pattern.compile("listening (\\S+)"), "http://");
    return server;
  }

  /** An address at which nobody listens. */
  public static String nobody() {
    try (ServerSocket socket = new ServerSocket(0)) {
      return "http://127.0.0.1:" + socket.getLocalPort();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private void run(String listen) {
    String binary = System.getenv("TIDEGATE_BIN");
    if (binary == null) {
      binary = root().resolve("target/debug/tidegate").toString();
    }
    List<String> words = new ArrayList<>(List.of(binary, "serve", "--config", config.toString()));
    words.addAll(List.of("--data-dir", folder.toString(), "--http-listen", listen));
    words.addAll(
        List.of(
            "--grpc-listen",
            "127.0.0.1:0",
            "--resp-listen",
            "127.0.0.1:0",
            "--intake-listen",
            "off"));
    begin(words, Pattern.compile("(https?://127\\.0\\.0\\.1:\\d+)"), "");
  }

  private void begin(List<String> words, Pattern address, String before) {
    ProcessBuilder builder =
        new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT);
    builder.environment().keySet().removeIf(name -> name.startsWith("TIDEGATE_"));
    try {
      process = builder.start();
      Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
      BufferedReader lines =
          new BufferedReader(
              new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        Matcher found = address.matcher(line);
        if (found.find()) {
          url = before + found.group(1);
          Thread rest = new Thread(() -> drain(lines));
          rest.setDaemon(true);
          rest.start();
          return;
        }
      }
      throw new IllegalStateException("the server ended before it listened");
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Reads what a server says later, until it ends. */
  private static void drain(BufferedReader lines) {
    try {
      while (lines.readLine() != null) {
        continue;
      }
    } catch (IOException ended) {
      // It was killed.
    }
  }

  /** Where it listens. */
  public String url() {
    return url;
  }

  /** Stops it where it is, and returns when all of its threads stand still. */
  public void freeze() {
    signal("STOP");
    long began = System.nanoTime();
    while (!stands()) {
      if (System.nanoTime() - began > BOUND_NANOS) {
        throw new IllegalStateException("the server does not stand still");
      }
    }
  }

  private boolean stands() {
    try (Stream<Path> threads =
        Files.list(Path.of("/proc", Long.toString(process.pid()), "task"))) {
      for (Path thread : threads.toList()) {
        if (!Files.readString(thread.resolve("stat")).contains(") T ")) {
          return false;
        }
      }
      return true;
    } catch (IOException error) {
      return false; // A thread ended meanwhile.
    }
  }

  /** Lets it go on. */
  public void thaw() {
    signal("CONT");
  }

  /** Lets a server that misbehaves be well from now on. */
  public void heal() {
    signal("USR1");
  }

  /** Ends it at once. */
  public void kill() {
    process.destroyForcibly();
    process.onExit().join();
  }

  /** Starts it again, on the same port and data. */
  public void restart() {
    run(url.substring("http://".length()));
  }

  private void signal(String name) {
    try {
      if (new ProcessBuilder("kill", "-" + name, Long.toString(process.pid()))
              .inheritIO()
              .start()
              .waitFor()
          != 0) {
        throw new IllegalStateException("no signal reached the server");
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public void close() {
    kill();
    if (folder == null) {
      return;
    }
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
