package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * clients/targets.json, sent by a socket to applications that a test has started: with a limit of
 * 0, no handler is reached.
 */
public final class Targets {
  /** What the handler of /pay and of /api/pay answers. */
  public static final String REACHED = "the handler";

  /** The field with which a request is not limited. */
  public static final String SKIP = "x-skip";

  private static final Pattern STATUS = Pattern.compile("^HTTP/1\\.1 (\\d+)");

  private Targets() {}

  /** The policies. */
  public static String config() {
    return (String) document().get("config");
  }

  /**
   * Sends all of them.
   *
   * @param framework its name in the document
   * @param root the port of an application that is limited as a whole, as the client "root"
   * @param mounted the port of one whose part below /api is limited, as the client "mounted"
   */
  public static void run(String framework, int root, int mounted) throws IOException {
    List<String> reaching = new ArrayList<>();
    List<String> expected = new ArrayList<>();
    for (Object item : Document.list(document().get("targets"))) {
      Map<String, Object> one = Document.object(item);
      String name = one.getOrDefault("method", "GET") + " " + one.get("target");
      if (Document.list(one.get("reached")).contains(framework)) {
        expected.add(name);
      }
      String target = written(one, "");
      String below = written(one, "/api");
      if (counted(root, target, one)) {
        reaching.add(name);
      }
      counted(root, below, one);
      if (!below.equals(target)) {
        counted(mounted, below, one);
      }
    }
    assertEquals(expected, reaching);
  }

  private static Map<String, Object> document() {
    return Document.object(Document.file("clients/targets.json"));
  }

  private static String written(Map<String, Object> one, String prefix) {
    String target = ((String) one.get("target")).replace("{p}", prefix);
    target = target.replace("{P}", prefix.toUpperCase(java.util.Locale.ROOT));
    for (Map.Entry<String, Object> part : Document.object(document().get("parts")).entrySet()) {
      target = target.replace(part.getKey(), Document.text(part.getValue()));
    }
    return target;
  }

  private record Answer(int status, boolean problem, boolean reached) {}

  /** Expects that no handler is reached uncounted; whether one is reached. */
  private static boolean counted(int port, String target, Map<String, Object> one)
      throws IOException {
    Answer free = ask(port, target, one, true);
    Answer limited = ask(port, target, one, false);
    String shown =
        target.substring(0, Math.min(target.length(), 60)) + ": " + free + " and " + limited;
    assertFalse(limited.reached, "reached, and not counted: " + shown);
    assertTrue(!limited.problem || limited.status == 429, "not its user's mistake: " + shown);
    assertTrue(!free.reached || limited.status == 429, "reached, and not denied: " + shown);
    return free.reached;
  }

  private static Answer ask(int port, String target, Map<String, Object> one, boolean skip)
      throws IOException {
    Map<String, Object> fields = new LinkedHashMap<>(Document.object(one.get("headers")));
    fields.put("host", "x.example");
    fields.put("connection", "close");
    if (skip) {
      fields.put(SKIP, "1");
    }
    StringBuilder text = new StringBuilder();
    text.append(one.getOrDefault("method", "GET")).append(' ').append(target);
    text.append(" HTTP/1.1\r\n");
    fields.forEach((name, value) -> text.append(name).append(": ").append(value).append("\r\n"));
    StringBuilder received = new StringBuilder();
    try (Socket socket = new Socket("127.0.0.1", port)) {
      socket
          .getOutputStream()
          .write(text.append("\r\n").toString().getBytes(StandardCharsets.ISO_8859_1));
      byte[] piece = new byte[65_536];
      for (int read = 0; read >= 0; read = socket.getInputStream().read(piece)) {
        received.append(new String(piece, 0, read, StandardCharsets.ISO_8859_1));
      }
    } catch (SocketException reset) {
      // A server may reset what it refuses.
    }
    Matcher status = STATUS.matcher(received);
    return new Answer(
        status.find() ? Integer.parseInt(status.group(1)) : 0,
        received.indexOf("application/problem+json") >= 0,
        received.indexOf(REACHED) >= 0);
  }
}
