package io.github.tidegate.bucket;

import io.github.tidegate.Decision;

/** What trying to consume would do. */
public final class EstimationProbe {
  private final Decision decision;

  EstimationProbe(Decision decision) {
    this.decision = decision;
  }

  /** Whether the tokens could be consumed. */
  public boolean canBeConsumed() {
    return decision.allowed();
  }

  /** What would be left. 0 if it is not known. */
  public long getRemainingTokens() {
    return decision.remaining().orElse(0);
  }

  /** How long to wait until they could be; Long.MAX_VALUE if they never can. */
  public long getNanosToWaitForRefill() {
    return ConsumptionProbe.wait(decision);
  }
}
