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
  private record Waiting(Request request, long deadline, CompletableFuture<Decision> answer) {}

  private final Core core;
  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private boolean running;

  Batcher(Core core) {
    this.core = core;
  }

  CompletableFuture<Decision> ask(Request request, long deadline) {
    CompletableFuture<Decision> answer = new CompletableFuture<>();
    synchronized (this) {
      if (waiting.size() >= Places.MAX_WAITING) {
        return CompletableFuture.failedFuture(
            new UnavailableException(
                Failure.TIMEOUT, "too many calls wait for a batch", null, false));
      }
      waiting.add(new Waiting(request, deadline, answer));
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
      if (!call.answer.isDone()) {
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
            .mapToLong(Waiting::deadline)
            .reduce((one, other) -> one - other > 0 ? one : other)
            .orElseThrow();
    CompletableFuture<List<Decision>> replies =
        core.decideTogether(calls.stream().map(Waiting::request).toList());
    core.endAt(replies, last);
    // On another thread, so that a queue of short batches is no recursion.
    replies.whenCompleteAsync((decisions, error) -> settle(calls, decisions, error), core.executor);
  }

  private void settle(List<Waiting> calls, List<Decision> decisions, Throwable error) {
    boolean refused = Core.cause(error) instanceof InvalidRequestException;
    for (int index = 0; index < calls.size(); index++) {
      Waiting call = calls.get(index);
      if (error == null) {
        call.answer.complete(decisions.get(index));
      } else if (refused && calls.size() > 1) {
        CompletableFuture<Decision> alone = core.decideOne(call.request);
        core.endAt(alone, call.deadline);
        alone.whenComplete((decision, wrong) -> Core.pass(call.answer, decision, wrong));
      } else {
        call.answer.completeExceptionally(Core.cause(error));
      }
    }
    send();
  }
}
