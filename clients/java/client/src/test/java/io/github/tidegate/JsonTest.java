package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class JsonTest {
  @Test
  void readsWhatItWrites() throws Json.Malformed {
    for (String text :
        List.of(
            "{}",
            "[]",
            "[1,-2,0,9223372036854775807]",
            "{\"a\":[true,false,null,1.5],\"b\":{\"c\":\"\\\"\\\\\"}}",
            "[\"\u00e9\ud83d\ude00\\u0001\"]")) {
      assertEquals(text, Json.write(Json.read(text)));
    }
    assertEquals(List.of("\u00e9\n/\ud83d\ude00"), Json.read("[\"\\u00e9\\n\\/\\ud83d\\ude00\"]"));
    assertEquals("1E+2", Json.read(" 1e2 ").toString());
  }

  @Test
  void refusesWhatIsMalformed() {
    for (String text :
        List.of(
            "",
            " ",
            "tru",
            "nul",
            "{",
            "[",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "1 2",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u00g0\"",
            "\"\n\"",
            "\"\\",
            "9223372036854775808",
            "1".repeat(65),
            "[".repeat(100_000),
            "[".repeat(66) + "]".repeat(66))) {
      assertThrows(Json.Malformed.class, () -> Json.read(text), text);
    }
    assertThrows(Json.Malformed.class, () -> Json.read(new byte[] {'"', (byte) 0xff, '"'}));
  }

  @Test
  void throwsNothingElse() {
    byte[] valid =
        "{\"allowed\":true,\"policies\":[{\"policy\":\"a\\u00e9\",\"limit\":1e5}]}"
            .getBytes(StandardCharsets.UTF_8);
    Random random = new Random(1);
    for (int round = 0; round < 20_000; round++) {
      byte[] bytes = Arrays.copyOf(valid, random.nextInt(valid.length + 1));
      for (int change = random.nextInt(4); change > 0 && bytes.length > 0; change--) {
        bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(128);
      }
      try {
        Decision.read(Json.read(bytes));
      } catch (Json.Malformed expected) {
        // Bytes are a decision or malformed.
      }
    }
  }
}
