package io.github.tidegate;

import java.util.Map;
import java.util.Objects;

/**
 * One question: the schema DecisionBody of the API.
 *
 * @param attributes what is known of the request, such as client_id and resource
 * @param cost units that it takes; 0 reads what remains
 * @param peek asks as if the cost were spent, and spends nothing
 */
public record Request(Map<String, String> attributes, long cost, boolean peek) {
  /** Copies the attributes. */
  public Request {
    attributes = Map.copyOf(attributes);
  }

  /** A request that takes one unit. */
  public static Request of(Map<String, String> attributes) {
    return new Request(attributes, 1, false);
  }

  /** A request that takes one unit, of one attribute. */
  public static Request of(String name, String value) {
    return of(Map.of(name, value));
  }

  /** The same with one more attribute. */
  public Request with(String name, String value) {
    Map<String, String> more = new java.util.HashMap<>(attributes);
    more.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
    return new Request(more, cost, peek);
  }

  /** The same at another cost. */
  public Request cost(long units) {
    return new Request(attributes, units, peek);
  }

  /** The same, spending nothing. */
  public Request peeking() {
    return new Request(attributes, cost, true);
  }

  /** Whether the answer changes what remains. */
  boolean spends() {
    return cost > 0 && !peek;
  }

  void write(StringBuilder written) {
    written.append("{\"attributes\":");
    Json.write(attributes, written);
    written.append(",\"cost\":").append(cost);
    if (peek) {
      written.append(",\"peek\":true");
    }
    written.append('}');
  }
}
