package io.github.tidegate;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * Reads and writes JSON (RFC 8259), so that this library needs no other.
 *
 * <p>A value is a {@code Map}, a {@code List}, a {@code String}, a {@code Long}, a {@code
 * BigDecimal}, a {@code Boolean} or null. What is malformed or nested too deeply is a {@link
 * Malformed}, and nothing else is thrown.
 */
final class Json {
  /** Deeper documents are refused: reading recurses. */
  private static final int MAX_DEPTH = 64;

  /** Longer numbers are refused. */
  private static final int MAX_NUMBER = 64;

  /** What was read is not JSON, or not of the shape that was asked for. */
  static final class Malformed extends Exception {
    private static final long serialVersionUID = 1L;

    Malformed(String what) {
      super(what);
    }
  }

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Reads one document. */
  static Object read(byte[] bytes) throws Malformed {
    try {
      return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
    } catch (CharacterCodingException error) {
      throw new Malformed("it is not UTF-8");
    }
  }

  /** Reads one document. */
  static Object read(String text) throws Malformed {
    Json json = new Json(text);
    Object value = json.value(0);
    json.space();
    if (json.at < text.length()) {
      throw json.wrong("more than one value");
    }
    return value;
  }

  private Malformed wrong(String what) {
    return new Malformed(what + " at character " + at);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private boolean take(char expected) {
    if (at < text.length() && text.charAt(at) == expected) {
      at++;
      return true;
    }
    return false;
  }

  private Object value(int depth) throws Malformed {
    if (depth > MAX_DEPTH) {
      throw wrong("nested too deeply");
    }
    space();
    if (at >= text.length()) {
      throw wrong("nothing");
    }
    char first = text.charAt(at);
    switch (first) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
        return string();
      default:
        return first == '-' || isDigit(first) ? number() : word();
    }
  }

  private Object word() throws Malformed {
    if (text.startsWith("true", at)) {
      at += 4;
      return true;
    } else if (text.startsWith("false", at)) {
      at += 5;
      return false;
    } else if (text.startsWith("null", at)) {
      at += 4;
      return null;
    }
    throw wrong("no value");
  }

  private Map<String, Object> object(int depth) throws Malformed {
    Map<String, Object> members = new LinkedHashMap<>();
    at++;
    space();
    if (take('}')) {
      return members;
    }
    do {
      space();
      if (at >= text.length() || text.charAt(at) != '"') {
        throw wrong("no name");
      }
      String name = string();
      space();
      if (!take(':')) {
        throw wrong("no colon");
      }
      members.put(name, value(depth + 1));
      space();
    } while (take(','));
    if (!take('}')) {
      throw wrong("an object that does not end");
    }
    return members;
  }

  private List<Object> list(int depth) throws Malformed {
    List<Object> items = new ArrayList<>();
    at++;
    space();
    if (take(']')) {
      return items;
    }
    do {
      items.add(value(depth + 1));
      space();
    } while (take(','));
    if (!take(']')) {
      throw wrong("a list that does not end");
    }
    return items;
  }

  private String string() throws Malformed {
    at++;
    int plain = at;
    while (plain < text.length() && text.charAt(plain) >= ' ' && text.charAt(plain) != '\\') {
      if (text.charAt(plain) == '"') {
        String whole = text.substring(at, plain);
        at = plain + 1;
        return whole;
      }
      plain++;
    }
    StringBuilder read = new StringBuilder(text.substring(at, plain));
    at = plain;
    while (at < text.length()) {
      char next = text.charAt(at++);
      if (next == '"') {
        return read.toString();
      } else if (next == '\\') {
        read.append(escaped());
      } else if (next < ' ') {
        break;
      } else {
        read.append(next);
      }
    }
    throw wrong("a text that does not end");
  }

  private char escaped() throws Malformed {
    if (at >= text.length()) {
      throw wrong("a text that does not end");
    }
    char kind = text.charAt(at++);
    int simple = "\"\\/bfnrt".indexOf(kind);
    if (simple >= 0) {
      return "\"\\/\b\f\n\r\t".charAt(simple);
    }
    if (kind != 'u' || at + 4 > text.length()) {
      throw wrong("no escape");
    }
    int code = 0;
    for (int end = at + 4; at < end; at++) {
      int digit = Character.digit(text.charAt(at), 16);
      if (digit < 0 || text.charAt(at) > 'f') {
        throw wrong("no escape");
      }
      code = code * 16 + digit;
    }
    return (char) code;
  }

  private static boolean isDigit(char character) {
    return character >= '0' && character <= '9';
  }

  private int digits() {
    int from = at;
    while (at < text.length() && isDigit(text.charAt(at))) {
      at++;
    }
    return at - from;
  }

  private Object number() throws Malformed {
    int from = at;
    take('-');
    boolean zero = at < text.length() && text.charAt(at) == '0';
    int whole = digits();
    boolean right = whole > 0 && !(zero && whole > 1);
    boolean integer = true;
    if (take('.')) {
      integer = false;
      right &= digits() > 0;
    }
    if (take('e') || take('E')) {
      integer = false;
      if (!take('+')) {
        take('-');
      }
      right &= digits() > 0;
    }
    if (!right || at - from > MAX_NUMBER) {
      throw wrong("no number");
    }
    String written = text.substring(from, at);
    try {
      return integer ? (Object) Long.valueOf(written) : new BigDecimal(written);
    } catch (NumberFormatException error) {
      throw wrong("a number that is too large");
    }
  }

  /** The members of an object, by the type that each has to be. */
  record Members(Map<?, ?> members) {
    static Members of(Object value) throws Malformed {
      if (value instanceof Map<?, ?> map) {
        return new Members(map);
      }
      throw new Malformed("it is no object");
    }

    private <T> Optional<T> find(String name, Class<T> type) throws Malformed {
      Object value = members.get(name);
      if (value == null) {
        return Optional.empty();
      }
      if (!type.isInstance(value)) {
        throw new Malformed("`" + name + "` is of another type");
      }
      return Optional.of(type.cast(value));
    }

    private <T> T need(String name, Class<T> type) throws Malformed {
      return find(name, type).orElseThrow(() -> new Malformed("`" + name + "` is missing"));
    }

    boolean flag(String name) throws Malformed {
      return find(name, Boolean.class).orElse(false);
    }

    boolean needFlag(String name) throws Malformed {
      return need(name, Boolean.class);
    }

    long needNumber(String name) throws Malformed {
      return need(name, Long.class);
    }

    OptionalLong number(String name) throws Malformed {
      Optional<Long> found = find(name, Long.class);
      return found.isPresent() ? OptionalLong.of(found.get()) : OptionalLong.empty();
    }

    String needText(String name) throws Malformed {
      return need(name, String.class);
    }

    Optional<String> text(String name) throws Malformed {
      return find(name, String.class);
    }

    Optional<Members> object(String name) throws Malformed {
      Optional<?> found = find(name, Map.class);
      return found.isPresent() ? Optional.of(of(found.get())) : Optional.empty();
    }

    Members needObject(String name) throws Malformed {
      return of(need(name, Map.class));
    }

    List<?> needList(String name) throws Malformed {
      return need(name, List.class);
    }

    List<String> texts(String name) throws Malformed {
      List<String> texts = new ArrayList<>();
      for (Object item : find(name, List.class).orElse(List.of())) {
        if (!(item instanceof String text)) {
          throw new Malformed("an item of `" + name + "` is no text");
        }
        texts.add(text);
      }
      return List.copyOf(texts);
    }

    /** The members as they are. */
    Map<String, Object> all() {
      Map<String, Object> copy = new LinkedHashMap<>();
      members.forEach((name, value) -> copy.put((String) name, value));
      return Collections.unmodifiableMap(copy);
    }
  }

  /** Writes a value that {@link #read(String)} could have made; any {@code Number} will do. */
  static String write(Object value) {
    StringBuilder written = new StringBuilder(128);
    write(value, written);
    return written.toString();
  }

  static void write(Object value, StringBuilder written) {
    if (value instanceof String text) {
      quote(text, written);
    } else if (value instanceof Map<?, ?> map) {
      char before = '{';
      for (Map.Entry<?, ?> member : map.entrySet()) {
        written.append(before);
        quote((String) member.getKey(), written);
        written.append(':');
        write(member.getValue(), written);
        before = ',';
      }
      written.append(map.isEmpty() ? "{}" : "}");
    } else if (value instanceof List<?> list) {
      char before = '[';
      for (Object item : list) {
        written.append(before);
        write(item, written);
        before = ',';
      }
      written.append(list.isEmpty() ? "[]" : "]");
    } else {
      written.append(value);
    }
  }

  private static void quote(String text, StringBuilder written) {
    written.append('"');
    for (int index = 0; index < text.length(); index++) {
      char character = text.charAt(index);
      if (character == '"' || character == '\\') {
        written.append('\\').append(character);
      } else if (character < ' ') {
        written.append(String.format("\\u%04x", (int) character));
      } else {
        written.append(character);
      }
    }
    written.append('"');
  }
}
