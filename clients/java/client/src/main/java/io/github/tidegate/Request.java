package io.github.tidegate;

import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * One question: the schema DecisionBody of the API.
 *
 * @param attributes what is known of the request, such as client_id and resource
 * @param cost units that it takes; 0 reads what remains
 * @param peek asks as if the cost were spent, and spends nothing
 * @param limits decide where no policy applies; units are given back with the same limits
 */
public record Request(
    Map<String, String> attributes, long cost, boolean peek, Optional<Limits> limits) {
  /** Copies the attributes. */
  public Request {
    attributes = Map.copyOf(attributes);
    Objects.requireNonNull(limits);
  }

  /** A request that takes one unit. */
  public static Request of(Map<String, String> attributes) {
    return new Request(attributes, 1, false, Optional.empty());
  }

  /** A request that takes one unit, of one attribute. */
  public static Request of(String name, String value) {
    return of(Map.of(name, value));
  }

  /** The same with one more attribute. */
  public Request with(String name, String value) {
    Map<String, String> more = new java.util.HashMap<>(attributes);
    more.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
    return new Request(more, cost, peek, limits);
  }

  /** The same at another cost. */
  public Request cost(long units) {
    return new Request(attributes, units, peek, limits);
  }

  /** The same, spending nothing. */
  public Request peeking() {
    return new Request(attributes, cost, true, limits);
  }

  /** The same with limits of its own. */
  public Request limits(Limits own) {
    return new Request(attributes, cost, peek, Optional.of(own));
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
    if (limits.isPresent()) {
      written.append(",\"limits\":");
      limits.get().write(written);
    }
    written.append('}');
  }
}
