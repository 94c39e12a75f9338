package io.github.tidegate;

import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Interrupts a thread at its deadline, and only while it waits for what the alarm is for: no
 * interruption of the alarm's is left when it has been stopped, and no one else's is lost by it.
 */
final class Alarm {
  private final Future<?> scheduled;
  private Thread waiting = Thread.currentThread();
  private boolean rang;

  /** Sets an alarm for this thread at a time of System.nanoTime. */
  Alarm(ScheduledExecutorService timer, long end) {
    scheduled = timer.schedule(this::ring, end - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  private synchronized void ring() {
    if (waiting != null) {
      rang = true;
      waiting.interrupt();
    }
  }

  /**
   * Stops it on its own thread; says whether it rang. Then what was waited for may have come all
   * the same.
   */
  boolean stop() {
    synchronized (this) {
      waiting = null;
    }
    scheduled.cancel(false);
    if (rang) {
      Thread.interrupted();
    }
    return rang;
  }
}
