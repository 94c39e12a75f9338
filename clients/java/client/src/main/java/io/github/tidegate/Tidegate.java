package io.github.tidegate;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * Asks a Tidegate service whether a request may go ahead.
 *
 * <pre>{@code
 * try (Tidegate client = Tidegate.create()) {
 *   Decision decision = client.allow(Map.of("client_id", user, "resource", "api"));
 *   if (!decision.allowed()) {
 *     // Try again in decision.retryAfter() seconds.
 *   }
 * }
 * }</pre>
 *
 * <p>A client is never the reason of an outage: a call ends within its deadline (50 ms), a server
 * that gives no answer is no longer asked for a while, and {@link Options#onFailure} says what is
 * answered meanwhile. A denied client costs no round trip until its wait is over. Make one client
 * and keep it; it is safe for use by many threads. Futures end on a thread of the client's: what is
 * done with them has to be short, or on an executor of its own.
 */
public final class Tidegate implements AutoCloseable {
  private final Core core;
  private final Duration deadline;
  private final Telling telling;

  private Tidegate(Core core, Duration deadline, Telling telling) {
    this.core = core;
    this.deadline = deadline;
    this.telling = telling;
  }

  /** A client with the defaults. */
  public static Tidegate create() {
    return create(options -> {});
  }

  /**
   * A client with changed options. It sends nothing yet.
   *
   * @throws IllegalArgumentException if an option makes no sense
   */
  public static Tidegate create(Consumer<Options> change) {
    Options options = new Options();
    change.accept(options);
    options.check();
    return new Tidegate(new Core(options), options.deadline, new Telling(options.onEvent));
  }

  /** The same client, whose calls have another deadline. */
  public Tidegate withDeadline(Duration other) {
    return new Tidegate(core, Options.checkedDeadline(other), telling);
  }

  /** Whether a request with these attributes may go ahead; it takes one unit. */
  public Decision allow(Map<String, String> attributes) {
    return allow(Request.of(attributes));
  }

  /**
   * Whether a request may go ahead. It is answered within the deadline, whatever the server does:
   * {@link Decision#source} says by whom.
   *
   * @throws InvalidRequestException if the request is wrong in itself
   */
  public Decision allow(Request request) {
    long started = System.nanoTime();
    Optional<Decision> remembered = core.denials.find(request, started);
    Decision decision;
    if (remembered.isPresent()) {
      decision = remembered.get();
    } else {
      long end = started + deadline.toNanos();
      long asked = core.denials.asked();
      Result<Decision> result =
          core.canDecideNow()
              ? core.decideNow(request, end)
              : waited(core.decide(request, end), end);
      decision = telling.guarded("allow", started, () -> settled(request, result, asked));
    }
    telling.decision("allow", decision, started);
    return decision;
  }

  /** {@link #allow(Request)} for callers who do not wait. */
  public CompletableFuture<Decision> allowAsync(Request request) {
    long started = System.nanoTime();
    Optional<Decision> remembered = core.denials.find(request, started);
    if (remembered.isPresent()) {
      telling.decision("allow", remembered.get(), started);
      return CompletableFuture.completedFuture(remembered.get());
    }
    long end = started + deadline.toNanos();
    long asked = core.denials.asked();
    return later(
        core.decide(request, end),
        end,
        result -> {
          Decision decision =
              telling.guarded("allow", started, () -> settled(request, result, asked));
          telling.decision("allow", decision, started);
          return decision;
        });
  }

  /**
   * Asks several requests, 1,000 in one call; each is decided by itself, in order. Those whose
   * denial is remembered are not sent.
   *
   * @throws InvalidRequestException if one of them is wrong in itself; then no later one was
   *     decided
   */
  public List<Decision> batch(List<Request> requests) {
    long started = System.nanoTime();
    long end = started + deadline.toNanos();
    List<Decision> decisions = new ArrayList<>(requests.size());
    for (int from = 0; from < requests.size(); from += Core.MAX_BATCH) {
      List<Request> part = requests.subList(from, Math.min(requests.size(), from + Core.MAX_BATCH));
      Parts parts = new Parts(part, started);
      Result<List<Decision>> result =
          parts.asked.isEmpty()
              ? new Result<>(List.of(), null)
              : waited(core.decideTogether(parts.asked, false), end);
      decisions.addAll(telling.guarded("batch", started, () -> parts.joined(result)));
    }
    telling.batch(decisions, started);
    return decisions;
  }

  /** {@link #batch} for callers who do not wait; at most 1,000 requests. */
  public CompletableFuture<List<Decision>> batchAsync(List<Request> requests) {
    if (requests.size() > Core.MAX_BATCH) {
      throw new IllegalArgumentException(
          requests.size() + " requests; at most " + Core.MAX_BATCH + " are accepted");
    }
    long started = System.nanoTime();
    long end = started + deadline.toNanos();
    Parts parts = new Parts(requests, started);
    CompletableFuture<List<Decision>> call =
        parts.asked.isEmpty()
            ? CompletableFuture.completedFuture(List.of())
            : core.decideTogether(parts.asked, false);
    return later(
        call,
        end,
        result -> {
          List<Decision> decisions = telling.guarded("batch", started, () -> parts.joined(result));
          telling.batch(decisions, started);
          return decisions;
        });
  }

  /** The requests of a batch whose denial is not remembered, and the answers of the others. */
  private final class Parts {
    final List<Request> asked = new ArrayList<>();
    private final long when = core.denials.asked();
    private final List<Request> all;
    private final List<Optional<Decision>> known = new ArrayList<>();

    Parts(List<Request> requests, long now) {
      all = List.copyOf(requests);
      for (Request request : all) {
        Optional<Decision> remembered = core.denials.find(request, now);
        known.add(remembered);
        if (remembered.isEmpty()) {
          asked.add(request);
        }
      }
    }

    List<Decision> joined(Result<List<Decision>> result) {
      List<Decision> decisions = new ArrayList<>(all.size());
      int next = 0;
      for (int index = 0; index < all.size(); index++) {
        if (known.get(index).isPresent()) {
          decisions.add(known.get(index).get());
        } else {
          Decision answer = result.error == null ? result.value.get(next++) : null;
          decisions.add(settled(all.get(index), new Result<>(answer, result.error), when));
        }
      }
      return decisions;
    }
  }

  /**
   * Gives the request's cost back to every policy that applies.
   *
   * @throws InvalidRequestException if the request is wrong in itself
   */
  public Refunded refund(Request request) {
    long started = System.nanoTime();
    long end = started + deadline.toNanos();
    return refunded(request, waited(refunding(request), end), started);
  }

  /** {@link #refund} for callers who do not wait. */
  public CompletableFuture<Refunded> refundAsync(Request request) {
    long started = System.nanoTime();
    return later(
        refunding(request),
        started + deadline.toNanos(),
        result -> refunded(request, result, started));
  }

  private CompletableFuture<Refunded> refunding(Request request) {
    StringBuilder body = new StringBuilder(128);
    request.write(body);
    return core.call(
        core.propagated(core.post("/v1/refunds", body)),
        (document, reply) -> Refunded.read(document));
  }

  private Refunded refunded(Request request, Result<Refunded> result, long started) {
    core.denials.forget(request.attributes());
    return telling
        .simple("refund", started, result)
        .orElseGet(() -> new Refunded(List.of(), Optional.of(result.failure())));
  }

  /**
   * Asks for a permit of a concurrency limit. Without the server it is answered by {@link
   * Options#onFailure}; then it holds nothing. A permit that is not released lapses with its lease.
   *
   * @throws InvalidRequestException if the request is wrong in itself
   */
  public Permit acquire(Request request) {
    long started = System.nanoTime();
    return acquired(request, waited(acquiring(request), started + deadline.toNanos()), started);
  }

  /** {@link #acquire} for callers who do not wait. */
  public CompletableFuture<Permit> acquireAsync(Request request) {
    long started = System.nanoTime();
    return later(
        acquiring(request),
        started + deadline.toNanos(),
        result -> acquired(request, result, started));
  }

  private CompletableFuture<Decision> acquiring(Request request) {
    StringBuilder body = new StringBuilder(128);
    request.write(body);
    return core.call(core.propagated(core.post("/v1/permits", body)), Core::described);
  }

  private Permit acquired(Request request, Result<Decision> result, long started) {
    Decision decision =
        telling.guarded(
            "acquire",
            started,
            () ->
                result.error == null
                    ? result.value
                    : core.alone.answer(request, result.failure(), System.nanoTime()));
    telling.decision("acquire", decision, started);
    return new Permit(this, decision);
  }

  void release(String permit) {
    long started = System.nanoTime();
    CompletableFuture<Boolean> call =
        core.call(core.propagated(core.request(path(permit)).DELETE()), (document, reply) -> true);
    telling.simple("release", started, waited(call, started + deadline.toNanos()));
  }

  Optional<Duration> renew(String permit) {
    long started = System.nanoTime();
    CompletableFuture<Duration> call =
        core.call(
            core.propagated(core.post(path(permit) + "/renew", "")),
            (document, reply) ->
                Duration.ofMillis(Json.Members.of(document).needNumber("lease_ms")));
    return telling.simple("renew", started, waited(call, started + deadline.toNanos()));
  }

  private static String path(String permit) {
    return "/v1/permits/" + URLEncoder.encode(permit, StandardCharsets.UTF_8);
  }

  /**
   * Takes the most units that a request can use, of which {@link Charge#settle} gives back what is
   * left.
   *
   * @throws InvalidRequestException if the request is wrong in itself
   */
  public Charge reserve(Request request) {
    return new Charge(this, request, allow(request));
  }

  /**
   * {@link #reserve} for a middleware, whose attributes are what a user has sent: where the server
   * refuses them, {@link Options#onFailure} decides, since that is no mistake of the user. The log
   * says so once.
   */
  public Charge admit(Request request) {
    try {
      return reserve(request);
    } catch (InvalidRequestException refused) {
      if (!core.refused.getAndSet(true)) {
        System.getLogger("io.github.tidegate")
            .log(
                System.Logger.Level.WARNING,
                "the server refuses what it is asked, so onFailure decides: "
                    + refused.getMessage());
      }
      long now = System.nanoTime();
      return new Charge(this, request, core.alone.answer(request, Failure.STATUS, now));
    }
  }

  /**
   * Says what each policy would do to a request, and why; it takes nothing.
   *
   * @throws InvalidRequestException if the request is wrong in itself
   * @throws UnavailableException if the server gives no answer
   */
  public Explanation explain(Request request) {
    long started = System.nanoTime();
    Result<Explanation> result = waited(explaining(request), started + deadline.toNanos());
    return telling.simple("explain", started, result).orElseThrow(result::unavailable);
  }

  /** {@link #explain} for callers who do not wait. */
  public CompletableFuture<Explanation> explainAsync(Request request) {
    long started = System.nanoTime();
    return later(
        explaining(request),
        started + deadline.toNanos(),
        result -> telling.simple("explain", started, result).orElseThrow(result::unavailable));
  }

  private CompletableFuture<Explanation> explaining(Request request) {
    StringBuilder path = new StringBuilder("/v1/explain?cost=").append(request.cost());
    request
        .attributes()
        .forEach(
            (name, value) ->
                path.append('&')
                    .append(URLEncoder.encode(name, StandardCharsets.UTF_8))
                    .append('=')
                    .append(URLEncoder.encode(value, StandardCharsets.UTF_8)));
    if (request.limits().isPresent()) {
      StringBuilder limits = new StringBuilder();
      request.limits().get().write(limits);
      path.append("&limits=").append(URLEncoder.encode(limits.toString(), StandardCharsets.UTF_8));
    }
    return core.call(
        core.propagated(core.request(path.toString()).GET()),
        (document, reply) -> Explanation.read(document));
  }

  /** A call's value, or its error. */
  record Result<T>(T value, Throwable error) {
    Failure failure() {
      return unavailable().failure();
    }

    UnavailableException unavailable() {
      if (error instanceof UnavailableException failure) {
        return failure;
      }
      Failure kind =
          error instanceof CancellationException ? Failure.CANCELLED : Failure.CONNECTION;
      return new UnavailableException(kind, String.valueOf(error), error, false);
    }

    Result<T> orThrow() {
      if (error instanceof InvalidRequestException invalid) {
        throw invalid;
      }
      return this;
    }
  }

  /** Waits for a call until its deadline, by this thread's own clock, and ends it then. */
  private <T> Result<T> waited(CompletableFuture<T> call, long end) {
    try {
      return new Result<>(call.get(end - System.nanoTime(), TimeUnit.NANOSECONDS), null);
    } catch (TimeoutException late) {
      core.late(call);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      call.completeExceptionally(Core.interrupted(interrupted));
    } catch (ExecutionException error) {
      return new Result<>(null, error.getCause());
    } catch (CancellationException error) {
      return new Result<>(null, error);
    }
    try {
      return new Result<>(
          call.join(), null); // It has ended: by the above, or by its reply just before.
    } catch (RuntimeException error) {
      return new Result<>(null, Core.cause(error));
    }
  }

  /** What becomes of a call that nobody waits for. Who cancels the future ends the call. */
  private <T, U> CompletableFuture<U> later(
      CompletableFuture<T> call, long end, java.util.function.Function<Result<T>, U> then) {
    core.endAt(call, end);
    CompletableFuture<U> answer =
        call.handle((value, error) -> then.apply(new Result<>(value, Core.cause(error))));
    answer.whenComplete(
        (value, error) -> {
          if (error instanceof CancellationException) {
            call.completeExceptionally(
                new UnavailableException(
                    Failure.CANCELLED, "the future was cancelled", null, false));
          }
        });
    return answer;
  }

  /** The answer that the caller gets. */
  private Decision settled(Request request, Result<Decision> result, long asked) {
    if (result.orThrow().error != null) {
      return core.alone.answer(request, result.failure(), System.nanoTime());
    }
    core.denials.remember(request, result.value, asked, System.nanoTime());
    return result.value;
  }

  /** Counts since the client was made. */
  public Stats stats() {
    return new Stats(
        telling.server.sum(),
        telling.cache.sum(),
        telling.fallback.sum(),
        core.places.full(),
        core.denials.evicted(),
        core.alone.evicted(),
        core.breaker.isOpen());
  }

  /**
   * Counts since a client was made.
   *
   * @param server decisions that the server made
   * @param cache denials that were remembered
   * @param fallback decisions without the server
   * @param connectionsFull calls that found every connection in use until their deadline
   * @param denialsEvicted denials that left a full cache
   * @param fallbackEvicted keys that left the full table of the local limit
   * @param breakerOpen whether the server is not asked now
   */
  public record Stats(
      long server,
      long cache,
      long fallback,
      long connectionsFull,
      long denialsEvicted,
      long fallbackEvicted,
      boolean breakerOpen) {}

  /**
   * Ends the client, with all views of it. Later calls are answered by {@link Options#onFailure}.
   */
  @Override
  public void close() {
    core.close();
  }
}
