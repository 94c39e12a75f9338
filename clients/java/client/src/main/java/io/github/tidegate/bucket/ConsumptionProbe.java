package io.github.tidegate.bucket;

import io.github.tidegate.Decision;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** What trying to consume did. */
public final class ConsumptionProbe {
  private final Decision decision;

  ConsumptionProbe(Decision decision) {
    this.decision = decision;
  }

  /** Whether the tokens were consumed. */
  public boolean isConsumed() {
    return decision.allowed();
  }

  /** What is left. 0 if it is not known. */
  public long getRemainingTokens() {
    return decision.remaining().orElse(0);
  }

  /**
   * How long to wait until the same can be consumed; Long.MAX_VALUE if it never can, 0 if it was.
   */
  public long getNanosToWaitForRefill() {
    return wait(decision);
  }

  /** How long until the bucket is full again. */
  public long getNanosToWaitForReset() {
    return TimeUnit.MILLISECONDS.toNanos(decision.resetMs().orElse(0));
  }

  /** How it was decided. */
  public Decision decision() {
    return decision;
  }

  static long wait(Decision decision) {
    if (decision.allowed()) {
      return 0;
    }
    return decision.retryAfterMs().isPresent()
        ? Duration.ofMillis(decision.retryAfterMs().getAsLong()).toNanos()
        : Long.MAX_VALUE;
  }
}
