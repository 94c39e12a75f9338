package io.github.tidegate;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A place under a concurrency limit, or the denial of one.
 *
 * <pre>{@code
 * try (Permit permit = client.acquire(Request.of("resource", "reports"))) {
 *   if (!permit.decision().allowed()) {
 *     return busy();
 *   }
 *   ...
 * }
 * }</pre>
 */
public final class Permit implements AutoCloseable {
  private final Tidegate client;
  private final Decision decision;
  private final AtomicBoolean released = new AtomicBoolean();

  Permit(Tidegate client, Decision decision) {
    this.client = client;
    this.decision = decision;
  }

  /** Whether it was handed out, and why not. */
  public Decision decision() {
    return decision;
  }

  /** Whether there is a permit that was not released. */
  public boolean held() {
    return decision.permit().isPresent() && !released.get();
  }

  /**
   * Makes the permit last for another lease, whose length is returned; empty if it is not held any
   * more or the server gave no answer.
   */
  public Optional<Duration> renew() {
    return held() ? client.renew(decision.permit().get()) : Optional.empty();
  }

  /** Gives the permit back, once. What cannot be released lapses with its lease. */
  public void release() {
    if (decision.permit().isPresent() && !released.getAndSet(true)) {
      client.release(decision.permit().get());
    }
  }

  /** {@link #release}. */
  @Override
  public void close() {
    release();
  }
}
