package io.github.tidegate.bucket;

import io.github.tidegate.Decision;
import io.github.tidegate.Limits;
import io.github.tidegate.Request;
import io.github.tidegate.Tidegate;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A bucket whose tokens are in a Tidegate service, with the calls of Bucket4j's {@code Bucket}.
 *
 * <p>All processes with the same attributes share it. Its capacity and refill are those of the
 * service's policy, or those that it is given where no policy applies.
 */
public final class TidegateBucket {
  private final Tidegate client;
  private final Request one;

  /** The bucket with these attributes, of which the service's policies alone have the numbers. */
  public TidegateBucket(Tidegate client, Map<String, String> attributes) {
    this.client = client;
    this.one = Request.of(attributes);
  }

  /** The bucket with these attributes, and these numbers where no policy applies. */
  public TidegateBucket(Tidegate client, Map<String, String> attributes, Limits limits) {
    this.client = client;
    this.one = Request.of(attributes).limits(limits);
  }

  /** Consumes tokens if there are enough. */
  public boolean tryConsume(long tokens) {
    return ask(tokens).allowed();
  }

  private Decision ask(long tokens) {
    return client.allow(one.cost(positive(tokens)));
  }

  private static long positive(long tokens) {
    if (tokens <= 0) {
      throw new IllegalArgumentException(tokens + " tokens; a number above 0 is accepted");
    }
    return tokens;
  }

  /** Consumes tokens if there are enough, and says what is left and how long to wait. */
  public ConsumptionProbe tryConsumeAndReturnRemaining(long tokens) {
    return new ConsumptionProbe(ask(tokens));
  }

  /** Says whether tokens could be consumed, and consumes none. */
  public EstimationProbe estimateAbilityToConsume(long tokens) {
    return new EstimationProbe(client.allow(one.cost(positive(tokens)).peeking()));
  }

  /** What can be consumed now. 0 if it is not known. */
  public long getAvailableTokens() {
    return client.allow(one.cost(0)).remaining().orElse(0);
  }

  /** Gives tokens back. */
  public void addTokens(long tokens) {
    client.refund(one.cost(positive(tokens)));
  }

  /** The calls that wait. */
  public Blocking asBlocking() {
    return new Blocking();
  }

  /**
   * The calls that wait until there are enough tokens. Those that wait are spread by a tenth of the
   * wait.
   */
  public final class Blocking {
    private Blocking() {}

    /**
     * Consumes tokens as soon as there are enough.
     *
     * @throws IllegalArgumentException if there never are
     */
    public void consume(long tokens) throws InterruptedException {
      if (!within(tokens, Long.MAX_VALUE)) {
        throw new IllegalArgumentException("the bucket never holds " + tokens + " tokens");
      }
    }

    /** Consumes tokens as soon as there are enough, unless that takes longer than a time. */
    public boolean tryConsume(long tokens, Duration longest) throws InterruptedException {
      return within(tokens, longest.toNanos());
    }

    private boolean within(long tokens, long longest) throws InterruptedException {
      long started = System.nanoTime();
      while (true) {
        Decision decision = ask(tokens);
        if (decision.allowed()) {
          Thread.sleep(decision.delay().toMillis()); // A leaky bucket's queue.
          return true;
        }
        long wait = ConsumptionProbe.wait(decision);
        if (wait == Long.MAX_VALUE || wait > longest - (System.nanoTime() - started)) {
          return false;
        }
        TimeUnit.NANOSECONDS.sleep(wait + ThreadLocalRandom.current().nextLong(wait / 10 + 1));
      }
    }
  }
}
