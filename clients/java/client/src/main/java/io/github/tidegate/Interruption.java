package io.github.tidegate;

/**
 * Interrupts a thread at its deadline, and only while it waits for what this is for: no
 * interruption of its own is left when it has been stopped, and nobody else's is lost by it.
 */
final class Interruption {
  private final Alarms alarms;
  private final Alarms.Alarm set;
  private Thread waiting = Thread.currentThread();
  private boolean rang;

  /** Sets an alarm for this thread at a time of System.nanoTime. */
  Interruption(Alarms alarms, long end) {
    this.alarms = alarms;
    set = alarms.set(end, this::ring);
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
    alarms.cancel(set);
    if (rang) {
      Thread.interrupted();
    }
    return rang;
  }
}
