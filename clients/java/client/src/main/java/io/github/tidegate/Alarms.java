package io.github.tidegate;

import java.util.TreeSet;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What has to be done at a time of System.nanoTime, if it is not cancelled before.
 *
 * <p>Nearly all alarms are cancelled after a small part of their time. So the thread that waits for
 * them is woken only by one that is earlier than what it waits for: it goes on sleeping when alarms
 * are cancelled or later ones set, and looks again when it wakes by itself. A
 * ScheduledThreadPoolExecutor wakes its thread for each call that is alone, which costs about as
 * much as all else that this client adds to a call.
 *
 * <p>It holds an alarm for each call under way, and none after.
 */
final class Alarms {
  /** One of them. What it does is short, and runs on the thread of all. */
  static final class Alarm implements Comparable<Alarm> {
    private final long at;
    private final long number;
    private final Runnable what;

    private Alarm(long at, long number, Runnable what) {
      this.at = at;
      this.number = number;
      this.what = what;
    }

    @Override
    public int compareTo(Alarm other) {
      int byTime = Long.signum(at - other.at);
      return byTime == 0 ? Long.compare(number, other.number) : byTime;
    }
  }

  private final ThreadFactory threads;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition earlier = lock.newCondition();
  private final TreeSet<Alarm> waiting = new TreeSet<>();
  private long numbers;
  private Thread thread;
  private boolean closed;

  /** Whether the thread waits for an alarm, and until when; else it waits for the first one. */
  private boolean timed;

  private long until;

  Alarms(ThreadFactory threads) {
    this.threads = threads;
  }

  /** Sets an alarm. When this is closed it goes off at once, on the caller's thread. */
  Alarm set(long at, Runnable what) {
    Alarm alarm;
    lock.lock();
    try {
      alarm = new Alarm(at, numbers++, what);
      if (!closed) {
        waiting.add(alarm);
        if (thread == null) {
          Thread started = threads.newThread(this::run);
          started.start();
          thread = started;
        } else if (!timed || at - until < 0) {
          earlier.signal();
        }
        return alarm;
      }
    } finally {
      lock.unlock();
    }
    what.run();
    return alarm;
  }

  void cancel(Alarm alarm) {
    lock.lock();
    try {
      waiting.remove(alarm);
    } finally {
      lock.unlock();
    }
  }

  private void run() {
    for (Alarm due = next(); due != null; due = next()) {
      due.what.run();
    }
  }

  /** Waits for the next that goes off; null when there will be none. */
  private Alarm next() {
    lock.lock();
    try {
      while (true) {
        timed = !waiting.isEmpty();
        if (timed) {
          until = waiting.first().at;
          long left = until - System.nanoTime();
          if (left <= 0) {
            return waiting.pollFirst();
          }
          earlier.awaitNanos(left);
        } else if (closed) {
          return null;
        } else {
          earlier.await();
        }
      }
    } catch (InterruptedException nobodyDoes) {
      throw new IllegalStateException(nobodyDoes);
    } finally {
      lock.unlock();
    }
  }

  /** Ends the thread when what is set has gone off or is cancelled. */
  void close() {
    lock.lock();
    try {
      closed = true;
      earlier.signal();
    } finally {
      lock.unlock();
    }
  }
}
