package io.github.tidegate;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A cost that was taken before it was known, to be settled at the end: for a reply that streams.
 */
public final class Charge {
  private final Tidegate client;
  private final Request request;
  private final Decision decision;
  private final AtomicBoolean settled = new AtomicBoolean();

  Charge(Tidegate client, Request request, Decision decision) {
    this.client = client;
    this.request = request;
    this.decision = decision;
  }

  /** Whether the cost was taken. */
  public Decision decision() {
    return decision;
  }

  /**
   * Says how many units were used; the others are given back, within the client's deadline, while
   * the caller goes on. Only the first call counts, and nothing is given back that the server has
   * not taken. The future ends when it is done.
   */
  public CompletableFuture<Void> settle(long used) {
    long left = request.cost() - Math.max(used, 0);
    if (!decision.allowed()
        || decision.source() != Decision.Source.SERVER
        || left <= 0
        || settled.getAndSet(true)) {
      return CompletableFuture.completedFuture(null);
    }
    // What was accepted as a cost is accepted as a refund.
    return client.refundAsync(request.cost(left)).handle((refunded, error) -> null);
  }
}
