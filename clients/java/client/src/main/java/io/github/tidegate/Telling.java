package io.github.tidegate;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Counts decisions, and tells the hook what was done. */
final class Telling {
  final LongAdder server = new LongAdder();
  final LongAdder cache = new LongAdder();
  final LongAdder fallback = new LongAdder();
  private final Consumer<Event> hook;

  Telling(Consumer<Event> hook) {
    this.hook = hook;
  }

  private void tell(
      String operation,
      String outcome,
      Optional<Decision.Source> source,
      Optional<Failure> failure,
      Optional<String> policy,
      long started,
      int count) {
    try {
      hook.accept(
          new Event(
              operation,
              outcome,
              source,
              failure,
              policy,
              Duration.ofNanos(System.nanoTime() - started),
              count));
    } catch (RuntimeException ignored) {
      // A hook is never the reason of an outage.
    }
  }

  private void count(Decision decision) {
    switch (decision.source()) {
      case SERVER -> server.increment();
      case CACHE -> cache.increment();
      case FALLBACK -> fallback.increment();
    }
  }

  void decision(String operation, Decision decision, long started) {
    count(decision);
    String outcome = decision.allowed() ? "allowed" : "denied";
    tell(
        operation,
        outcome,
        Optional.of(decision.source()),
        decision.failure(),
        decision.policy(),
        started,
        1);
  }

  void batch(List<Decision> decisions, long started) {
    decisions.forEach(decision -> decision("batch", decision, started));
  }

  /** Tells of a request that is wrong in itself, and throws it. */
  <T> T guarded(String operation, long started, Supplier<T> answer) {
    try {
      return answer.get();
    } catch (InvalidRequestException invalid) {
      tell(operation, "failed", Optional.empty(), Optional.empty(), Optional.empty(), started, 1);
      throw invalid;
    }
  }

  /** The result of a call that decides nothing; empty if the server gave none. */
  <T> Optional<T> simple(String operation, long started, Tidegate.Result<T> result) {
    guarded(operation, started, result::orThrow);
    if (result.error() != null) {
      Optional<Failure> failure = Optional.of(result.failure());
      tell(operation, "failed", Optional.empty(), failure, Optional.empty(), started, 1);
      return Optional.empty();
    }
    tell(
        operation,
        "done",
        Optional.of(Decision.Source.SERVER),
        Optional.empty(),
        Optional.empty(),
        started,
        1);
    return Optional.of(result.value());
  }
}
