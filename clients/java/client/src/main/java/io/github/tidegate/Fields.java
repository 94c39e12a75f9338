package io.github.tidegate;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.IntPredicate;

/**
 * Reads the fields RateLimit and RateLimit-Policy: lists of RFC 9651, whose items are texts with
 * parameters.
 *
 * <p>A list that is malformed anywhere is ignored as a whole, as that RFC demands.
 */
final class Fields {
  /** How much is read of a field. */
  private static final int MAX_CHARACTERS = 16 << 10;

  /** One policy: its name, and its parameters; those that are no integers are empty. */
  record Item(String name, Map<String, OptionalLong> parameters) {
    /** Whether a parameter is an integer that is not negative. */
    boolean has(String parameter) {
      return parameters.getOrDefault(parameter, OptionalLong.empty()).orElse(-1) >= 0;
    }

    long get(String parameter) {
      return parameters.getOrDefault(parameter, OptionalLong.empty()).orElse(0);
    }
  }

  private static final class Wrong extends Exception {
    private static final long serialVersionUID = 1L;

    Wrong() {
      super(null, null, false, false);
    }
  }

  private final String text;
  private int at;

  private Fields(String text) {
    this.text = text;
  }

  /** The items of a field's lines; empty if they are malformed. */
  static Optional<List<Item>> read(List<String> lines) {
    String joined = String.join(", ", lines);
    if (joined.length() > MAX_CHARACTERS) {
      return Optional.empty();
    }
    try {
      return Optional.of(new Fields(joined).list());
    } catch (Wrong wrong) {
      return Optional.empty();
    }
  }

  private List<Item> list() throws Wrong {
    List<Item> items = new ArrayList<>();
    span(character -> character == ' ');
    while (at < text.length()) {
      items.add(item());
      span(character -> character == ' ' || character == '\t');
      if (at == text.length()) {
        return items;
      }
      need(',');
      span(character -> character == ' ' || character == '\t');
      if (at == text.length()) {
        throw new Wrong();
      }
    }
    return items;
  }

  private char peek() throws Wrong {
    if (at >= text.length()) {
      throw new Wrong();
    }
    return text.charAt(at);
  }

  private boolean take(char expected) {
    if (at < text.length() && text.charAt(at) == expected) {
      at++;
      return true;
    }
    return false;
  }

  private void need(char expected) throws Wrong {
    if (!take(expected)) {
      throw new Wrong();
    }
  }

  private String span(IntPredicate is) {
    int from = at;
    while (at < text.length() && is.test(text.charAt(at))) {
      at++;
    }
    return text.substring(from, at);
  }

  private static boolean isLower(int character) {
    return character >= 'a' && character <= 'z';
  }

  private static boolean isDigit(int character) {
    return character >= '0' && character <= '9';
  }

  private static boolean isAlpha(int character) {
    return isLower(character | 0x20) && character < 0x80;
  }

  private Item item() throws Wrong {
    String name = string();
    Map<String, OptionalLong> parameters = new HashMap<>();
    while (take(';')) {
      span(character -> character == ' ');
      char first = peek();
      if (!isLower(first) && first != '*') {
        throw new Wrong();
      }
      String key =
          span(
              character ->
                  isLower(character) || isDigit(character) || "_-.*".indexOf(character) >= 0);
      parameters.put(key, take('=') ? bare() : OptionalLong.empty());
    }
    return new Item(name, parameters);
  }

  /** A bare item of any type; integers alone have a value here. */
  private OptionalLong bare() throws Wrong {
    char first = peek();
    if (first == '-' || isDigit(first)) {
      return number();
    }
    if (first == '*' || isAlpha(first)) {
      span(
          character ->
              isAlpha(character)
                  || isDigit(character)
                  || "!#$%&'*+-.^_`|~:/".indexOf(character) >= 0);
      return OptionalLong.empty();
    }
    switch (first) {
      case '"' -> string();
      case ':' -> bytes();
      case '?' -> {
        at++;
        if (!take('0')) {
          need('1');
        }
      }
      case '@' -> {
        at++;
        if (number().isEmpty()) {
          throw new Wrong();
        }
      }
      case '%' -> display();
      default -> throw new Wrong();
    }
    return OptionalLong.empty();
  }

  private void bytes() throws Wrong {
    int end = text.indexOf(':', at + 1);
    if (end < 0) {
      throw new Wrong();
    }
    try {
      Base64.getDecoder().decode(text.substring(at + 1, end));
    } catch (IllegalArgumentException wrong) {
      throw new Wrong();
    }
    at = end + 1;
  }

  private OptionalLong number() throws Wrong {
    boolean negative = take('-');
    String whole = span(Fields::isDigit);
    if (take('.')) {
      String part = span(Fields::isDigit);
      if (whole.isEmpty() || whole.length() > 12 || part.isEmpty() || part.length() > 3) {
        throw new Wrong();
      }
      return OptionalLong.empty();
    }
    if (whole.isEmpty() || whole.length() > 15) {
      throw new Wrong();
    }
    long value = Long.parseLong(whole);
    return OptionalLong.of(negative ? -value : value);
  }

  private String string() throws Wrong {
    need('"');
    StringBuilder read = new StringBuilder();
    while (true) {
      char character = peek();
      at++;
      if (character == '"') {
        return read.toString();
      }
      if (character == '\\') {
        character = peek();
        at++;
        if (character != '"' && character != '\\') {
          throw new Wrong();
        }
      } else if (character < 0x20 || character > 0x7e) {
        throw new Wrong();
      }
      read.append(character);
    }
  }

  /** Passes over a display string. */
  private void display() throws Wrong {
    need('%');
    need('"');
    while (true) {
      char character = peek();
      at++;
      if (character == '"') {
        return;
      }
      if (character < 0x20 || character > 0x7e) {
        throw new Wrong();
      }
      if (character == '%') {
        for (int digit = 0; digit < 2; digit++) {
          if ("0123456789abcdef".indexOf(peek()) < 0) {
            throw new Wrong();
          }
          at++;
        }
      }
    }
  }

  /** Writes a policy's name as a text of RFC 9651. */
  static String quoted(String name) {
    return '"' + name.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }
}
