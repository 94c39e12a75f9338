package io.github.tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/** clients/conformance.json, and how its expectations are read. */
public final class Document {
  private Document() {}

  /** The document. */
  public static Map<String, Object> read() {
    return object(file("clients/conformance.json"));
  }

  /** A JSON file of the repository. */
  static Object file(String path) {
    try {
      return Json.read(Files.readAllBytes(TestServer.root().resolve(path)));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (Json.Malformed error) {
      throw new IllegalArgumentException(path, error);
    }
  }

  /** A value that is an object; an empty one for none. */
  public static Map<String, Object> object(Object value) {
    Map<String, Object> members = new LinkedHashMap<>();
    if (value instanceof Map<?, ?> map) {
      map.forEach((name, member) -> members.put((String) name, member));
    }
    return members;
  }

  /** A value that is a list. */
  public static List<?> list(Object value) {
    return (List<?>) value;
  }

  /** A text, which may be written as a repetition. */
  public static String text(Object value) {
    if (value instanceof Map<?, ?> parts) {
      String then = Objects.toString(parts.get("then"), "");
      return ((String) parts.get("repeat")).repeat(((Long) parts.get("times")).intValue()) + then;
    }
    return (String) value;
  }

  /** What a JSON text says; none if it is malformed. */
  public static Optional<Object> json(String text) {
    try {
      return Optional.ofNullable(Json.read(text));
    } catch (Json.Malformed error) {
      return Optional.empty();
    }
  }

  /** Where a result is not what was expected; empty: nowhere. A result of null is absent. */
  public static String differs(Object expected, Object result, String place) {
    if (expected instanceof Map<?, ?> rule) {
      if (rule.containsKey("absent")) {
        return said(result == null, place, result);
      }
      if (rule.containsKey("present")) {
        return said(result != null, place, null);
      }
      if (rule.get("one_of") instanceof List<?> choices) {
        return said(choices.contains(result), place, result);
      }
      if (rule.get("from") instanceof Long from) {
        long to = rule.get("to") instanceof Long bound ? bound : Long.MAX_VALUE;
        return said(result instanceof Long number && number >= from && number <= to, place, result);
      }
      Map<String, Object> members = object(result);
      for (Map.Entry<?, ?> member : rule.entrySet()) {
        String inner =
            differs(member.getValue(), members.get(member.getKey()), place + "." + member.getKey());
        if (!inner.isEmpty()) {
          return inner;
        }
      }
      return said(result instanceof Map, place, result);
    }
    if (expected instanceof List<?> rules) {
      if (!(result instanceof List<?> items) || items.size() != rules.size()) {
        return said(false, place, result);
      }
      for (int index = 0; index < rules.size(); index++) {
        String inner = differs(rules.get(index), items.get(index), place + "[" + index + "]");
        if (!inner.isEmpty()) {
          return inner;
        }
      }
      return "";
    }
    return said(Objects.equals(expected, result), place, result);
  }

  private static String said(boolean fine, String place, Object result) {
    return fine ? "" : place + " is " + result;
  }
}
