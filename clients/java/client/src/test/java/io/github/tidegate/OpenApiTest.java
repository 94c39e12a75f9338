package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/**
 * The records against docs/openapi.json: a field that one of them has and the other has not fails
 * this test.
 */
class OpenApiTest {
  /** What a record has beside its schema. */
  private static final Set<String> OURS =
      Set.of("source", "failure", "rate_limit_policy", "rate_limit");

  /**
   * What may be absent in a document, and has a value here all the same: false, 0, 1 or an empty
   * list.
   */
  private static final Set<String> HAVE_DEFAULTS =
      Set.of("no_match", "not_listed", "concurrent", "errors", "violated_policies", "cost", "peek");

  private static final Map<String, Class<? extends Record>> RECORDS =
      Map.ofEntries(
          Map.entry("DecisionBody", Request.class),
          Map.entry("LimitsBody", Limits.class),
          Map.entry("DecisionReply", Decision.class),
          Map.entry("PartReply", PolicyPart.class),
          Map.entry("RefundReply", Refunded.class),
          Map.entry("Explanation", Explanation.class),
          Map.entry("PolicyExplanation", Explanation.OfPolicy.class),
          Map.entry("LeaseExplanation", Explanation.Lease.class),
          Map.entry("RequestLimitsExplanation", Explanation.OfRequest.class),
          Map.entry("Problem", Problem.class),
          Map.entry("FieldError", Problem.FieldError.class));

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
          Set<String> required = new TreeSet<>();
          Document.list(Document.object(schemas.get(name)).get("required"))
              .forEach(property -> required.add((String) property));
          Map<String, String> known = new TreeMap<>();
          Set<String> present = new TreeSet<>();
          for (RecordComponent component : type.getRecordComponents()) {
            String property =
                component.getName().replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
            if (!OURS.contains(property)) {
              known.put(property, kind(component.getGenericType()));
              boolean optional = component.getType().getSimpleName().startsWith("Optional");
              if (!optional && !HAVE_DEFAULTS.contains(property)) {
                present.add(property);
              }
            }
          }
          assertEquals(stated, known, name);
          assertEquals(required, present, name);
        });
    // `Renewed` is a Duration here.
    Object renewed = Document.object(schemas.get("Renewed")).get("properties");
    assertEquals(Set.of("lease_ms"), Document.object(renewed).keySet());
  }

  @Test
  void operationsAreThoseOfTheDocument() {
    Map<String, Object> document = Document.object(Document.file("docs/openapi.json"));
    Map<String, Object> paths = Document.object(document.get("paths"));
    Map<String, Object> schemas =
        Document.object(Document.object(document.get("components")).get("schemas"));
    Set<String> found = new TreeSet<>();
    Map<String, Object> api = Document.object(Document.read().get("api"));
    api.forEach(
        (name, own) -> {
          String[] words = name.split(" ");
          Object operation = Document.object(paths.get(words[1])).get(words[0]);
          Set<Object> stated = new HashSet<>();
          for (Object parameter :
              Document.list(Document.object(operation).getOrDefault("parameters", List.of()))) {
            stated.add(Document.object(parameter).get("name"));
          }
          Set<Object> known = new HashSet<>();
          Document.object(own).values().forEach(names -> known.addAll(Document.list(names)));
          assertEquals(stated, known, name);
          refer(operation, schemas, found);
        });
    found.removeIf(name -> !Document.object(schemas.get(name)).containsKey("properties"));
    Set<String> types = new TreeSet<>(RECORDS.keySet());
    types.add("Renewed");
    assertEquals(types, found);
  }

  /** Collects the schemas that a part of the document refers to, directly or through others. */
  private static void refer(Object part, Map<String, Object> schemas, Set<String> found) {
    if (part instanceof List<?> items) {
      items.forEach(item -> refer(item, schemas, found));
    } else if (part instanceof Map<?, ?> members) {
      if (members.get("$ref") instanceof String reference) {
        String name = reference.substring(reference.lastIndexOf('/') + 1);
        if (found.add(name)) {
          refer(schemas.get(name), schemas, found);
        }
      }
      members.values().forEach(member -> refer(member, schemas, found));
    }
  }

  /** A schema in words, with what is in a list or an object. */
  private static String kind(Map<String, Object> schema) {
    if (schema.get("$ref") instanceof String reference) {
      return reference.substring(reference.lastIndexOf('/') + 1);
    }
    if (schema.get("items") instanceof Map<?, ?> items) {
      return "array of " + kind(Document.object(items));
    }
    if (schema.get("additionalProperties") instanceof Map<?, ?> values
        && values.get("type") instanceof String type) {
      return "object of " + type;
    }
    return (String) schema.get("type");
  }

  /** A type in the words of its schema. */
  private static String kind(Type type) {
    for (Map.Entry<String, Class<? extends Record>> one : RECORDS.entrySet()) {
      if (one.getValue() == type) {
        return one.getKey();
      }
    }
    if (type instanceof ParameterizedType generic) {
      Type[] of = generic.getActualTypeArguments();
      if (generic.getRawType() == Optional.class) {
        return kind(of[0]);
      }
      if (generic.getRawType() == List.class) {
        return "array of " + kind(of[0]);
      }
      return of[1] == Object.class ? "object" : "object of " + kind(of[1]);
    }
    if (type == boolean.class) {
      return "boolean";
    }
    if (type == String.class) {
      return "string";
    }
    return type == long.class || type == int.class || type == OptionalLong.class
        ? "integer"
        : type.getTypeName();
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
