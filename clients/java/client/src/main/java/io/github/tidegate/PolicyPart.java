package io.github.tidegate;

import java.util.OptionalLong;

/**
 * One policy's part in a decision: the schema PartReply of the API.
 *
 * @param policy its name
 * @param mode enforce or shadow
 * @param allowed whether it had room
 * @param limit the most that can be spent at once
 * @param remaining what can still be spent
 * @param retryAfterMs milliseconds until the same request would fit; absent if it does or never
 *     will
 * @param resetMs milliseconds until the whole quota is back
 * @param concurrent whether it limits requests at one time: any release may end a denial before its
 *     wait is over
 */
public record PolicyPart(
    String policy,
    String mode,
    boolean allowed,
    long limit,
    long remaining,
    OptionalLong retryAfterMs,
    long resetMs,
    boolean concurrent) {

  /** Whether it can deny. */
  public boolean enforced() {
    return mode.equals("enforce");
  }

  /** The same some time later. */
  PolicyPart later(long passedMs) {
    OptionalLong wait =
        retryAfterMs.isEmpty()
            ? retryAfterMs
            : OptionalLong.of(Math.max(1, retryAfterMs.getAsLong() - passedMs));
    long reset = Math.max(0, resetMs - passedMs);
    return new PolicyPart(policy, mode, allowed, limit, remaining, wait, reset, concurrent);
  }

  static PolicyPart read(Json.Members members) throws Json.Malformed {
    return new PolicyPart(
        members.needText("policy"),
        members.needText("mode"),
        members.needFlag("allowed"),
        members.needNumber("limit"),
        members.needNumber("remaining"),
        members.number("retry_after_ms"),
        members.needNumber("reset_ms"),
        members.flag("concurrent"));
  }
}
