package io.github.tidegate;

import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A place for each call that is under way. Those that find none wait in a queue, which is bounded
 * too; those whose deadline comes first are passed over.
 */
final class Places {
  /** How many calls wait. */
  static final int MAX_WAITING = 10_000;

  /** A call that waits, until it has a place. */
  private static final class Waiting {
    final CompletableFuture<?> call;
    final Runnable start;
    boolean placed;

    Waiting(CompletableFuture<?> call, Runnable start) {
      this.call = call;
      this.start = start;
    }
  }

  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private int free;
  private long full;

  Places(int places) {
    free = places;
  }

  /**
   * Runs a call's start, now or when a place is free. It gives its place back by {@link #leave}.
   */
  void enter(CompletableFuture<?> call, Runnable start) {
    Waiting queued = null;
    boolean enters;
    synchronized (this) {
      enters = free > 0;
      if (enters) {
        free--;
      } else {
        if (waiting.size() >= MAX_WAITING) {
          waiting.removeIf(one -> one.call.isDone());
        }
        if (waiting.size() < MAX_WAITING) {
          queued = new Waiting(call, start);
          waiting.add(queued);
        }
      }
    }
    if (enters) {
      start.run();
    } else if (queued == null) {
      countFull();
      call.completeExceptionally(
          new UnavailableException(
              Failure.TIMEOUT, "too many calls wait for a connection", null, false));
    } else {
      Waiting waits = queued;
      call.whenComplete((result, error) -> ended(waits, error));
    }
  }

  /** Counts a call whose deadline came before its place. */
  private synchronized void ended(Waiting one, Throwable error) {
    if (!one.placed
        && Core.cause(error) instanceof UnavailableException late
        && late.failure() == Failure.TIMEOUT) {
      full++;
    }
  }

  private synchronized void countFull() {
    full++;
  }

  /** Waits for a place until a time of System.nanoTime; false if there was none. */
  boolean enterBy(long end) throws InterruptedException {
    synchronized (this) {
      if (free > 0) {
        free--;
        return true;
      }
    }
    CompletableFuture<Boolean> place = new CompletableFuture<>();
    enter(
        place,
        () -> {
          if (!place.complete(true)) {
            leave(); // It gave up just now.
          }
        });
    try {
      return place.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException late) {
      if (place.complete(false)) {
        countFull();
      }
      return place.join();
    } catch (ExecutionException queueIsFull) {
      return false;
    } catch (InterruptedException interrupted) {
      if (!place.complete(false) && place.join()) {
        leave();
      }
      throw interrupted;
    }
  }

  /** Gives a place back, to the next that waits. */
  void leave() {
    Waiting next;
    synchronized (this) {
      do {
        next = waiting.poll();
      } while (next != null && next.call.isDone());
      if (next == null) {
        free++;
        return;
      }
      next.placed = true;
    }
    next.start.run();
  }

  synchronized long full() {
    return full;
  }
}
