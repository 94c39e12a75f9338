package io.github.tidegate;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * What all views of a client share: connections, breaker, memory, and how one call is made.
 *
 * <p>A decision that a thread waits for is asked on that thread ({@link #decideNow}), where that
 * keeps the deadline. Any other call is a future that nothing here ends but its reply, its failure,
 * or whoever waits for it: a waiting thread ends it at its deadline by its own clock ({@link
 * Tidegate}), and a call that nobody waits for is ended by a timer ({@link #endAt}). Who ends a
 * future ends its exchange and its connection too.
 */
final class Core {
  static final String VERSION = "0.1.0";

  /** How many requests go into one call to the server. */
  static final int MAX_BATCH = 1000;

  /** Threads that read replies and complete futures. */
  private static final int THREADS = 4;

  final Options options;
  final Breaker breaker;
  final Denials denials;
  final Alone alone;
  final Places places;
  final Batcher batcher;
  final ThreadPoolExecutor executor;

  /** Whether the log has said that the server refuses what a middleware asks. */
  final AtomicBoolean refused = new AtomicBoolean();

  private final Alarms alarms;

  /** Closes connections whose call has ended, so that no other call waits for that. */
  private final ThreadPoolExecutor closing;

  private final HttpClient http;
  private volatile boolean closed;

  /** Whether the server's address is known without looking a name up. */
  private final boolean addressed;

  Core(Options options) {
    this.options = options;
    breaker = new Breaker(options.breakerFailures, options.breakerOpen.toNanos());
    denials = new Denials(options.denialCache, options.denialCacheTime.toNanos());
    alone = new Alone(options);
    places = new Places(options.maxConnections);
    batcher = options.batch ? new Batcher(this) : null;
    // 127.0.0.1 and [::1]: no name has only digits, and every IPv6 address has brackets.
    addressed = options.url.getHost().matches("[0-9.]+|\\[.*\\]");
    ThreadFactory threads =
        task -> {
          Thread thread = new Thread(task, "tidegate");
          thread.setDaemon(true);
          return thread;
        };
    executor = pool(THREADS, threads);
    closing = pool(1, threads);
    alarms = new Alarms(threads);
    http =
        options
            .http
            .version(HttpClient.Version.HTTP_1_1)
            .followRedirects(HttpClient.Redirect.NEVER)
            .executor(executor)
            .build();
  }

  /**
   * Threads with a queue for what calls under way have to say; these calls are bounded by their
   * places.
   */
  private static ThreadPoolExecutor pool(int size, ThreadFactory threads) {
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(
            size, size, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), threads);
    pool.allowCoreThreadTimeOut(true);
    // Only a closed client rejects; what its last calls have to say is said by whoever says it.
    pool.setRejectedExecutionHandler((task, closed) -> task.run());
    return pool;
  }

  /** A status, its fields and its body. */
  record Reply(int status, java.net.http.HttpHeaders fields, byte[] body) {}

  /** A reader of a reply's document. */
  @FunctionalInterface
  interface Reader<T> {
    T read(Object document, Reply reply) throws Json.Malformed;
  }

  CompletableFuture<Decision> decide(Request request, long deadline) {
    return batcher == null ? decideOne(request) : batcher.ask(request, deadline);
  }

  CompletableFuture<Decision> decideOne(Request request) {
    return call(question(request, batcher != null), Core::described);
  }

  private HttpRequest.Builder question(Request request, boolean shared) {
    StringBuilder body = new StringBuilder(128);
    request.write(body);
    return asked(body, shared);
  }

  /** What several callers share has no context of its own. */
  private HttpRequest.Builder asked(CharSequence body, boolean shared) {
    HttpRequest.Builder post = post("/v1/decisions", body);
    return shared ? post : propagated(post);
  }

  /**
   * Whether {@link #decideNow} keeps deadlines here: where a name has to be looked up, which
   * nothing interrupts, and where calls are sent together, a thread waits for a future instead.
   */
  boolean canDecideNow() {
    return batcher == null && addressed;
  }

  /**
   * Asks on the thread that waits: half of the cost of {@link #decideOne}, which passes through
   * three threads.
   */
  Tidegate.Result<Decision> decideNow(Request request, long end) {
    UnavailableException refusal = refusal();
    if (refusal != null) {
      return new Tidegate.Result<>(null, refusal);
    }
    Call<Decision> call = new Call<>();
    Throwable error = new CancellationException();
    try {
      Decision decision =
          understood(exchanged(call, question(request, false).build(), end), Core::described);
      error = null;
      return new Tidegate.Result<>(decision, null);
    } catch (InvalidRequestException | UnavailableException failure) {
      error = failure;
      return new Tidegate.Result<>(null, failure);
    } finally {
      call.tell(error);
    }
  }

  /** Sends a request and waits for its reply, on this thread. */
  private Reply exchanged(Call<?> call, HttpRequest request, long end) {
    try {
      if (!places.enterBy(end)) {
        throw new UnavailableException(Failure.TIMEOUT, "all connections are in use", null, false);
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw interrupted(interrupted);
    }
    try {
      return sent(call, request, new Interruption(alarms, end));
    } finally {
      places.leave();
    }
  }

  private Reply sent(Call<?> call, HttpRequest request, Interruption late) {
    try {
      call.sent = true;
      HttpResponse<byte[]> response = http.send(request, new BoundedBody());
      late.stop();
      call.status = response.statusCode();
      return new Reply(response.statusCode(), response.headers(), response.body());
    } catch (IOException | InterruptedException | RuntimeException error) {
      if (late.stop()) {
        throw timeout();
      }
      if (error instanceof InterruptedException) {
        Thread.currentThread().interrupt();
        throw interrupted(error);
      }
      throw broken(error);
    }
  }

  private static UnavailableException timeout() {
    return new UnavailableException(Failure.TIMEOUT, "no answer before the deadline");
  }

  static UnavailableException interrupted(Throwable cause) {
    return new UnavailableException(Failure.CANCELLED, "the thread was interrupted", cause, false);
  }

  private static UnavailableException broken(Throwable cause) {
    // HttpClient wraps what a body's reader throws.
    boolean tooLong =
        cause instanceof BoundedBody.TooLong || cause.getCause() instanceof BoundedBody.TooLong;
    return new UnavailableException(
        tooLong ? Failure.REPLY : Failure.CONNECTION, cause.toString(), cause, true);
  }

  /**
   * Why the server is not asked now; null if it is. Who is not refused tells the breaker how it
   * ended.
   */
  private UnavailableException refusal() {
    if (closed) {
      return new UnavailableException(Failure.CANCELLED, "the client is closed", null, false);
    }
    if (!breaker.admits(System.nanoTime())) {
      return new UnavailableException(
          Failure.BREAKER, "the server failed before and is not asked for now");
    }
    return null;
  }

  static Decision described(Object document, Reply reply) throws Json.Malformed {
    return Decision.read(document)
        .described(
            reply.fields.firstValue("ratelimit-policy"), reply.fields.firstValue("ratelimit"));
  }

  /** Asks one to {@link #MAX_BATCH} requests in one call, of one caller or shared by several. */
  CompletableFuture<List<Decision>> decideTogether(List<Request> requests, boolean shared) {
    if (requests.size() == 1) {
      return call(
          question(requests.get(0), shared),
          (document, reply) -> List.of(described(document, reply)));
    }
    StringBuilder body = new StringBuilder(128 * requests.size());
    char before = '[';
    for (Request request : requests) {
      body.append(before);
      request.write(body);
      before = ',';
    }
    return call(
        asked(body.append(']'), shared),
        (document, reply) -> {
          List<Decision> decisions = new ArrayList<>();
          if (document instanceof List<?> items && items.size() == requests.size()) {
            for (Object item : items) {
              decisions.add(Decision.read(item));
            }
            return decisions;
          }
          throw new Json.Malformed(requests.size() + " requests and another number of answers");
        });
  }

  HttpRequest.Builder post(String path, CharSequence body) {
    return request(path)
        .header("content-type", "application/json")
        .POST(
            HttpRequest.BodyPublishers.ofByteArray(
                body.toString().getBytes(StandardCharsets.UTF_8)));
  }

  HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(options.url + path));
    request.header("user-agent", "tidegate-java/" + VERSION);
    if (options.token != null) {
      request.header("authorization", "Bearer " + options.token);
    }
    return request;
  }

  /** Adds what {@link Options#headers} makes. Its mistakes are not the caller's. */
  HttpRequest.Builder propagated(HttpRequest.Builder request) {
    try {
      options.headers.get().forEach(request::setHeader);
    } catch (RuntimeException ignored) {
      // A hook is never the reason of an outage.
    }
    return request;
  }

  /**
   * Asks the server once, if the breaker admits it, and tells the breaker how it ended. The future
   * ends with an {@link InvalidRequestException} or an {@link UnavailableException} if not with a
   * result.
   */
  <T> CompletableFuture<T> call(HttpRequest.Builder request, Reader<T> reader) {
    UnavailableException refusal = refusal();
    if (refusal != null) {
      return CompletableFuture.failedFuture(refusal);
    }
    Call<T> call = new Call<>();
    places.enter(call, () -> start(call, request.build(), reader));
    return call;
  }

  /** One call on its way. The breaker knows its end before anybody who waits for it. */
  private final class Call<T> extends CompletableFuture<T> {
    private final AtomicBoolean told = new AtomicBoolean();
    volatile boolean sent;
    volatile int status;

    @Override
    public boolean complete(T result) {
      tell(null);
      return super.complete(result);
    }

    @Override
    public boolean completeExceptionally(Throwable error) {
      tell(error);
      return super.completeExceptionally(error);
    }

    @Override
    public boolean cancel(boolean interrupt) {
      tell(new CancellationException());
      return super.cancel(interrupt);
    }

    /** Tells the breaker how it ended, once. */
    void tell(Throwable error) {
      if (!told.getAndSet(true)) {
        breaker.ended(judged(error), System.nanoTime());
      }
    }

    /**
     * What its end tells of the server. A 5xx and a 200 that is no decision are failures; any other
     * status is a reply; a caller who gave up, and connections that were all in use, say nothing.
     */
    private Breaker.Outcome judged(Throwable error) {
      if (status >= 500) {
        return Breaker.Outcome.UNANSWERED;
      }
      if (!(cause(error) instanceof UnavailableException failure)) {
        return error instanceof CancellationException
            ? Breaker.Outcome.ABANDONED
            : Breaker.Outcome.REPLIED;
      }
      if (failure.failure() == Failure.STATUS) {
        return Breaker.Outcome.REPLIED;
      }
      return sent && failure.ofServer() ? Breaker.Outcome.UNANSWERED : Breaker.Outcome.ABANDONED;
    }
  }

  private <T> void start(Call<T> call, HttpRequest request, Reader<T> reader) {
    if (call.isDone()) {
      places.leave();
      return;
    }
    CompletableFuture<HttpResponse<byte[]>> exchange;
    try {
      call.sent = true;
      exchange = http.sendAsync(request, new BoundedBody());
    } catch (RuntimeException error) { // The executor is closed, say.
      places.leave();
      call.completeExceptionally(broken(error));
      return;
    }
    call.whenComplete((result, error) -> end(exchange, error));
    exchange.whenComplete(
        (response, error) -> {
          places.leave();
          if (error != null) {
            call.completeExceptionally(broken(cause(error)));
            return;
          }
          call.status = response.statusCode();
          try {
            call.complete(
                understood(
                    new Reply(response.statusCode(), response.headers(), response.body()), reader));
          } catch (RuntimeException failure) {
            call.completeExceptionally(failure);
          }
        });
  }

  private static <T> T understood(Reply reply, Reader<T> reader) {
    switch (reply.status) {
      case 200, 204:
        try {
          return reader.read(reply.status == 200 ? Json.read(reply.body) : null, reply);
        } catch (Json.Malformed malformed) {
          throw new UnavailableException(Failure.REPLY, malformed.getMessage());
        }
      case 400, 413, 422:
        throw new InvalidRequestException(reply.status, Problem.read(reply.status, reply.body));
      default:
        throw new UnavailableException(
            Failure.STATUS, reply.status + ": " + Problem.read(reply.status, reply.body).detail());
    }
  }

  /**
   * Ends a part of a call that has failed; not on the thread of the caller, who has waited long
   * enough.
   */
  private void end(CompletableFuture<?> part, Throwable error) {
    if (error != null && !part.isDone()) {
      closing.execute(() -> part.cancel(true));
    }
  }

  /** Ends a call at a time of System.nanoTime, if nothing has by then. */
  void endAt(CompletableFuture<?> call, long deadline) {
    if (call.isDone()) {
      return;
    }
    Alarms.Alarm alarm = alarms.set(deadline, () -> executor.execute(() -> late(call)));
    call.whenComplete((result, error) -> alarms.cancel(alarm));
  }

  /** Ends a call whose deadline has come. */
  void late(CompletableFuture<?> call) {
    call.completeExceptionally(timeout());
  }

  static <T> void pass(CompletableFuture<T> to, T result, Throwable error) {
    if (error == null) {
      to.complete(result);
    } else {
      to.completeExceptionally(cause(error));
    }
  }

  /** What a future's stages wrapped. */
  static Throwable cause(Throwable error) {
    return error instanceof CompletionException wrapped && wrapped.getCause() != null
        ? wrapped.getCause()
        : error;
  }

  void close() {
    closed = true;
    alarms.close();
    executor.shutdown();
    closing.shutdown();
  }
}
