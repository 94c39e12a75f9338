package io.github.tidegate;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The HTTP response that a middleware makes of a denial.
 *
 * @param status 429; 403 if no policy applies; 503 without the server; 414 for a path that is too
 *     long to be counted
 * @param fields its header fields
 * @param body its problem document
 */
public record Denial(int status, Map<String, String> fields, String body) {
  private static final String TYPES = "https://iana.org/assignments/http-problem-types#";

  /** The response to a decision that denies. */
  public static Denial of(Decision decision) {
    boolean closed =
        decision.source() == Decision.Source.FALLBACK
            && decision.degraded().orElse("").equals("closed");
    Map<String, String> fields = new LinkedHashMap<>();
    Problem problem;
    if (closed) {
      problem =
          new Problem(
              TYPES + "temporary-reduced-capacity",
              "Service Unavailable",
              503,
              "the rate limit cannot be checked",
              List.of(),
              List.of());
    } else if (decision.noMatch()) {
      return of(Problem.plain(403, "Forbidden", "no policy applies to the request"), fields);
    } else {
      fields.putAll(described(decision));
      problem =
          new Problem(
              TYPES + "quota-exceeded",
              "Quota Exceeded",
              429,
              "the quota of a policy is used up",
              List.of(),
              decision.violated());
    }
    decision.retryAfter().ifPresent(seconds -> fields.put("Retry-After", Long.toString(seconds)));
    return of(problem, fields);
  }

  /** The response to a request whose path is longer than this, so that it cannot be counted. */
  public static Denial tooLong(int bytes) {
    String detail = "the path is longer than " + bytes + " bytes";
    return of(Problem.plain(414, "URI Too Long", detail), new LinkedHashMap<>());
  }

  private static Denial of(Problem problem, Map<String, String> fields) {
    fields.put("Content-Type", "application/problem+json");
    fields.put("Cache-Control", "no-store");
    return new Denial(problem.status(), Map.copyOf(fields), problem.toJson());
  }

  /**
   * The response fields RateLimit-Policy and RateLimit of a decision; of one that has none (of a
   * batch, or remembered) they are made of its enforced parts.
   */
  public static Map<String, String> described(Decision decision) {
    StringBuilder policies = new StringBuilder();
    StringBuilder states = new StringBuilder();
    for (PolicyPart part : decision.policies()) {
      if (!part.enforced()) {
        continue;
      }
      String before = (policies.length() > 0 ? "," : "") + Fields.quoted(part.policy());
      policies.append(before).append(";q=").append(part.limit());
      states.append(before).append(";r=").append(part.remaining());
      if (!part.allowed() && part.retryAfterMs().isPresent()) {
        states.append(";t=").append((part.retryAfterMs().getAsLong() + 999) / 1000);
      }
    }
    String policyField = decision.rateLimitPolicy().orElse(policies.toString());
    String stateField = decision.rateLimit().orElse(states.toString());
    return policyField.isEmpty() || stateField.isEmpty()
        ? Map.of()
        : Map.of("RateLimit-Policy", policyField, "RateLimit", stateField);
  }
}
