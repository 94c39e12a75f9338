package io.github.tidegate;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What would happen to a request, and why: the schema Explanation of the API.
 *
 * @param allowed whether it would be allowed
 * @param degraded how the answer was found without the store
 * @param noMatch whether no policy applies
 * @param notListed how many policies that do not apply are left out of {@code policies}
 * @param policies every policy in force, but for those that are only counted
 * @param requestLimits the numbers that came with the request
 * @param revision revision of the stored configuration
 */
public record Explanation(
    boolean allowed,
    Optional<String> degraded,
    boolean noMatch,
    long notListed,
    List<OfPolicy> policies,
    Optional<OfRequest> requestLimits,
    long revision) {

  /**
   * One policy's part.
   *
   * @param policy the policy as a document
   * @param origin built-in, file or stored
   * @param applies whether it applies to the request
   * @param becauseOf the attribute that is absent or does not match
   * @param ownLimits the client's own numbers under this policy
   * @param lease what taking units ahead can cost
   * @param verdict what it would say
   */
  public record OfPolicy(
      Map<String, Object> policy,
      String origin,
      boolean applies,
      Optional<String> becauseOf,
      Optional<Map<String, Object>> ownLimits,
      Optional<Lease> lease,
      Optional<PolicyPart> verdict) {}

  /**
   * The numbers that came with a request.
   *
   * @param limits the numbers, as the request stated them
   * @param decide whether they decide
   * @param verdict what they would say, if they decide
   */
  public record OfRequest(
      Map<String, Object> limits, boolean decide, Optional<PolicyPart> verdict) {}

  /**
   * What taking units of a policy ahead can cost, over all nodes.
   *
   * @param lifetimeMs how long they can be spent
   * @param nodes nodes that share the limit
   * @param overAdmission most units above the limit in any one window
   * @param stranded most units that are not spent although nobody can spend them
   * @param units most units that a node takes at once
   */
  public record Lease(long lifetimeMs, long nodes, long overAdmission, long stranded, long units) {}

  static Explanation read(Object value) throws Json.Malformed {
    Json.Members members = Json.Members.of(value);
    List<OfPolicy> policies = new ArrayList<>();
    for (Object item : members.needList("policies")) {
      Json.Members part = Json.Members.of(item);
      Optional<Json.Members> lease = part.object("lease");
      policies.add(
          new OfPolicy(
              part.needObject("policy").all(),
              part.needText("origin"),
              part.needFlag("applies"),
              part.text("because_of"),
              part.object("own_limits").map(Json.Members::all),
              lease.isPresent() ? Optional.of(lease(lease.get())) : Optional.empty(),
              verdict(part)));
    }
    Optional<Json.Members> own = members.object("request_limits");
    return new Explanation(
        members.needFlag("allowed"),
        members.text("degraded"),
        members.flag("no_match"),
        members.number("not_listed").orElse(0),
        List.copyOf(policies),
        own.isPresent() ? Optional.of(ofRequest(own.get())) : Optional.empty(),
        members.needNumber("revision"));
  }

  private static OfRequest ofRequest(Json.Members own) throws Json.Malformed {
    return new OfRequest(own.needObject("limits").all(), own.needFlag("decide"), verdict(own));
  }

  private static Optional<PolicyPart> verdict(Json.Members members) throws Json.Malformed {
    Optional<Json.Members> verdict = members.object("verdict");
    return verdict.isPresent() ? Optional.of(PolicyPart.read(verdict.get())) : Optional.empty();
  }

  private static Lease lease(Json.Members lease) throws Json.Malformed {
    return new Lease(
        lease.needNumber("lifetime_ms"),
        lease.needNumber("nodes"),
        lease.needNumber("over_admission"),
        lease.needNumber("stranded"),
        lease.needNumber("units"));
  }
}
