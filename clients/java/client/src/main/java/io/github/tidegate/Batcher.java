package io.github.tidegate;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Sends calls that wait while others are on their way together.
 *
 * <p>No call waits for a timer: on an idle client a call goes at once and alone, and batches grow
 * with the load. What has not been sent when its caller has gone is not sent. A batch that is
 * refused was not charged: then each is asked alone, and one caller's mistake is not its
 * neighbours'.
 */
final class Batcher {
  /** A call that waits. Its deadline ends what it waits for, if nobody has a later one. */
  private static final class Waiting extends CompletableFuture<Decision> {
    final Request request;
    final long deadline;
    volatile CompletableFuture<?> asked;

    Waiting(Request request, long deadline) {
      this.request = request;
      this.deadline = deadline;
    }

    @Override
    public boolean completeExceptionally(Throwable error) {
      // First of all, so that the breaker knows it before the caller.
      CompletableFuture<?> last = asked;
      if (last != null
          && error instanceof UnavailableException late
          && late.failure() == Failure.TIMEOUT) {
        last.completeExceptionally(error);
      }
      return super.completeExceptionally(error);
    }
  }

  private final Core core;
  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private boolean running;

  Batcher(Core core) {
    this.core = core;
  }

  CompletableFuture<Decision> ask(Request request, long deadline) {
    Waiting answer = new Waiting(request, deadline);
    synchronized (this) {
      if (waiting.size() >= Places.MAX_WAITING) {
        return CompletableFuture.failedFuture(
            new UnavailableException(
                Failure.TIMEOUT, "too many calls wait for a batch", null, false));
      }
      waiting.add(answer);
      if (running) {
        return answer;
      }
      running = true;
    }
    send();
    return answer;
  }

  private synchronized List<Waiting> next() {
    List<Waiting> calls = new ArrayList<>();
    while (calls.size() < Core.MAX_BATCH && !waiting.isEmpty()) {
      Waiting call = waiting.poll();
      if (!call.isDone()) {
        calls.add(call);
      }
    }
    running = !calls.isEmpty();
    return calls;
  }

  private void send() {
    List<Waiting> calls = next();
    if (calls.isEmpty()) {
      return;
    }
    long last =
        calls.stream()
            .mapToLong(call -> call.deadline)
            .reduce((one, other) -> one - other > 0 ? one : other)
            .orElseThrow();
    CompletableFuture<List<Decision>> replies =
        core.decideTogether(calls.stream().map(call -> call.request).toList(), true);
    for (Waiting call : calls) {
      if (call.deadline == last) {
        call.asked = replies;
      }
    }
    core.endAt(replies, last);
    // On another thread, so that a queue of short batches is no recursion.
    replies.whenCompleteAsync((decisions, error) -> settle(calls, decisions, error), core.executor);
  }

  private void settle(List<Waiting> calls, List<Decision> decisions, Throwable error) {
    boolean refused = Core.cause(error) instanceof InvalidRequestException;
    for (int index = 0; index < calls.size(); index++) {
      Waiting call = calls.get(index);
      if (error == null) {
        call.complete(decisions.get(index));
      } else if (refused && calls.size() > 1) {
        CompletableFuture<Decision> alone = core.decideOne(call.request);
        call.asked = alone;
        core.endAt(alone, call.deadline);
        alone.whenComplete((decision, wrong) -> Core.pass(call, decision, wrong));
      } else {
        call.completeExceptionally(Core.cause(error));
      }
    }
    send();
  }
}
