package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.nio.file.Files;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/**
 * The records against docs/openapi.json: a field that one of them has and the other has not fails
 * this test.
 */
class OpenApiTest {
  /** What a record has beside its schema. */
  private static final Set<String> OURS =
      Set.of("source", "failure", "rate_limit_policy", "rate_limit");

  private static final Map<String, Class<? extends Record>> RECORDS =
      Map.of(
          "DecisionBody", Request.class,
          "DecisionReply", Decision.class,
          "PartReply", PolicyPart.class,
          "RefundReply", Refunded.class,
          "Explanation", Explanation.class,
          "PolicyExplanation", Explanation.OfPolicy.class,
          "LeaseExplanation", Explanation.Lease.class,
          "Problem", Problem.class,
          "FieldError", Problem.FieldError.class);

  @Test
  void recordsAreThoseOfTheDocument() {
    Map<String, Object> document = Document.object(Document.file("docs/openapi.json"));
    Map<String, Object> schemas =
        Document.object(Document.object(document.get("components")).get("schemas"));
    RECORDS.forEach(
        (name, type) -> {
          Map<String, String> stated = new TreeMap<>();
          Document.object(Document.object(schemas.get(name)).get("properties"))
              .forEach(
                  (property, schema) ->
                      stated.put(property.replace('-', '_'), kind(Document.object(schema))));
          Map<String, String> known = new TreeMap<>();
          for (RecordComponent component : type.getRecordComponents()) {
            String property =
                component.getName().replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
            if (!OURS.contains(property)) {
              known.put(property, kind(component.getGenericType()));
            }
          }
          assertEquals(stated, known, name);
        });
    // `Renewed` is a Duration here.
    Object renewed = Document.object(schemas.get("Renewed")).get("properties");
    assertEquals(Set.of("lease_ms"), Document.object(renewed).keySet());
  }

  private static String kind(Map<String, Object> schema) {
    Object type = schema.get("type");
    if (type instanceof List<?> kinds) {
      return kinds.stream()
          .filter(kind -> !kind.equals("null"))
          .findFirst()
          .map(Objects::toString)
          .orElse("");
    }
    return type == null ? "object" : (String) type;
  }

  private static String kind(Type type) {
    if (type instanceof ParameterizedType generic) {
      if (generic.getRawType() == Optional.class) {
        return kind(generic.getActualTypeArguments()[0]);
      }
      return generic.getRawType() == List.class ? "array" : "object";
    }
    if (type == boolean.class) {
      return "boolean";
    }
    if (type == String.class) {
      return "string";
    }
    return type == long.class || type == int.class || type == OptionalLong.class
        ? "integer"
        : "object";
  }

  @Test
  void theVersionIsTheServers() throws IOException {
    for (String file : List.of("Cargo.toml", "clients/java/pom.xml")) {
      String text = Files.readString(TestServer.root().resolve(file));
      boolean says =
          text.contains("\nversion = \"" + Core.VERSION + "\"\n")
              || text.contains(
                  "<artifactId>tidegate-parent</artifactId>\n  <version>" + Core.VERSION + "<");
      assertTrue(says, file + " has another version than " + Core.VERSION);
    }
  }
}
