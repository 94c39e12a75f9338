package io.github.tidegate;

import java.util.List;
import java.util.Optional;

/**
 * The result of a refund: the schema RefundReply of the API, or why the server gave no answer.
 *
 * @param policies the policies that were given units back
 * @param failure why the server gave no answer; the units may have come back or not
 */
public record Refunded(List<String> policies, Optional<Failure> failure) {
  static Refunded read(Object value) throws Json.Malformed {
    Json.Members members = Json.Members.of(value);
    members.needList("policies");
    return new Refunded(members.texts("policies"), Optional.empty());
  }
}
