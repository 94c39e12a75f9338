package io.github.tidegate;

/**
 * When the server is no longer asked.
 *
 * <pre>
 *   closed --failures in a row--&gt; open --pause--&gt; one call tries --reply--&gt; closed
 *                                  ^                    |
 *                                  +------ failure -----+
 * </pre>
 *
 * <p>What a caller gave up is neither: it only returns the right to try. Times are those of
 * System.nanoTime.
 */
final class Breaker {
  /** How a call that was admitted ended. */
  enum Outcome {
    REPLIED,
    UNANSWERED,
    ABANDONED
  }

  private final int failures;
  private final long pause;
  private int inRow;
  private boolean open;
  private boolean trying;
  private long until;

  Breaker(int failures, long pauseNanos) {
    this.failures = failures;
    this.pause = pauseNanos;
  }

  /** Whether the server may be asked now. Who is admitted tells how it ended. */
  synchronized boolean admits(long now) {
    if (!open) {
      return true;
    }
    if (trying || now - until < 0) {
      return false;
    }
    trying = true;
    return true;
  }

  synchronized void ended(Outcome how, long now) {
    switch (how) {
      case REPLIED -> {
        inRow = 0;
        open = false;
        trying = false;
      }
      case ABANDONED -> trying = false;
      case UNANSWERED -> {
        if (open && !trying) {
          return; // It was under way when the breaker opened.
        }
        inRow++;
        if (open || inRow >= failures) {
          open = true;
          trying = false;
          until = now + pause;
        }
      }
    }
  }

  synchronized boolean isOpen() {
    return open;
  }
}
