package io.github.tidegate;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.regex.Pattern;

/** Makes values that the server accepts of any text that a peer sent. */
public final class Bounded {
  private static final int MAX_BYTES = 512;
  private static final Pattern UNPAIRED = Pattern.compile("\\p{Cs}");

  private Bounded() {}

  /**
   * The value itself, or of one over 512 bytes its first 447, cut within no character and no escape
   * of a byte ({@code %2F}), a tilde, and the SHA-256 in hex of the whole: patterns that end in
   * {@code *} still match, and no two values are confused. So of one that is no Unicode. Of null it
   * is the empty text.
   */
  public static String value(String value) {
    if (value == null) {
      return "";
    }
    byte[] bytes;
    try {
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(value));
      if (encoded.remaining() <= MAX_BYTES) {
        return value;
      }
      bytes = new byte[encoded.remaining()];
      encoded.get(bytes);
    } catch (CharacterCodingException unpaired) {
      // Each unpaired surrogate counts as itself, so that no two texts are the same.
      ByteBuffer exact = ByteBuffer.allocate(2 * value.length());
      exact.asCharBuffer().put(value);
      bytes = exact.array();
      return cut(path(value).getBytes(StandardCharsets.UTF_8), bytes);
    }
    return cut(bytes, bytes);
  }

  /**
   * A path, whole: a policy could not see what was cut off. Each half of a character that has lost
   * its other one is replaced.
   */
  public static String path(String path) {
    return UNPAIRED.matcher(path).replaceAll("\uFFFD");
  }

  private static String cut(byte[] shown, byte[] whole) {
    String end = "~" + HexFormat.of().formatHex(sha256(whole));
    int length = Math.min(shown.length, MAX_BYTES - end.length());
    while (length < shown.length && length > 0 && (shown[length] & 0xC0) == 0x80) {
      length--;
    }
    for (int back = 1; back <= Math.min(2, length); back++) {
      if (shown[length - back] == '%') {
        length -= back;
        break;
      }
    }
    return new String(shown, 0, length, StandardCharsets.UTF_8) + end;
  }

  private static byte[] sha256(byte[] bytes) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(bytes);
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException("every Java platform has SHA-256", impossible);
    }
  }
}
