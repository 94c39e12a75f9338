package io.github.tidegate;

import java.io.IOException;
import java.net.Authenticator;
import java.net.CookieHandler;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * A {@code java.net.http.HttpClient} that keeps to the limits of any API that states them.
 *
 * <p>By RateLimit and Retry-After it slows down before the denial, waits as long as it is told, and
 * repeats only what changes nothing: a request of a safe method without a body, after 429 and 503.
 * A request's own timeout counts from when it is sent.
 */
public final class PacedHttpClient extends HttpClient {
  private static final Set<String> SAFE = Set.of("GET", "HEAD", "OPTIONS", "TRACE");

  private final HttpClient base;
  private final Duration maxWait;
  private final int retries;
  private final Pace pace;

  private PacedHttpClient(HttpClient base, Duration maxWait, int retries) {
    this.base = base;
    this.maxWait = maxWait;
    this.retries = retries;
    pace = new Pace(maxWait.toNanos());
  }

  /** Sends by another client, waits a minute at most, and repeats twice. */
  public static PacedHttpClient of(HttpClient base) {
    return of(base, Duration.ofMinutes(1), 2);
  }

  /** Sends by another client, waits so long at most, and repeats so often. */
  public static PacedHttpClient of(HttpClient base, Duration maxWait, int retries) {
    if (maxWait.isNegative() || retries < 0) {
      throw new IllegalArgumentException(
          "neither the longest wait nor the repetitions can be negative");
    }
    return new PacedHttpClient(base, maxWait, retries);
  }

  static String origin(URI uri) {
    int port =
        uri.getPort() >= 0 ? uri.getPort() : "https".equalsIgnoreCase(uri.getScheme()) ? 443 : 80;
    return (uri.getScheme() + "://" + uri.getHost() + ":" + port)
        .toLowerCase(java.util.Locale.ROOT);
  }

  /** Whether a request is sent again after this response, whose wait has been learned. */
  private boolean repeats(HttpRequest request, HttpResponse<?> response, int attempt) {
    boolean denied = response.statusCode() == 429 || response.statusCode() == 503;
    boolean empty = request.bodyPublisher().map(body -> body.contentLength() == 0).orElse(true);
    if (!denied || attempt >= retries || !empty || !SAFE.contains(request.method())) {
      return false;
    }
    return told(response).nanos() <= maxWait.toNanos();
  }

  private void learn(HttpRequest request, HttpResponse<?> response) {
    pace.learn(origin(request.uri()), told(response), System.nanoTime());
  }

  private static Pace.Wait told(HttpResponse<?> response) {
    return Pace.told(response.statusCode(), response.headers(), System.currentTimeMillis());
  }

  /** Gives up a body that nobody reads, such as an open stream. */
  private static void discard(Object body) {
    if (body instanceof AutoCloseable stream) {
      try {
        stream.close();
      } catch (Exception ignored) {
        // What cannot be closed costs the connection.
      }
    }
  }

  @Override
  public <T> HttpResponse<T> send(HttpRequest request, HttpResponse.BodyHandler<T> handler)
      throws IOException, InterruptedException {
    for (int attempt = 0; ; attempt++) {
      TimeUnit.NANOSECONDS.sleep(pace.departure(origin(request.uri()), System.nanoTime()));
      HttpResponse<T> response = base.send(request, handler);
      learn(request, response);
      if (!repeats(request, response, attempt)) {
        return response;
      }
      discard(response.body());
    }
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, HttpResponse.BodyHandler<T> handler) {
    return sendAsync(request, 0, () -> base.sendAsync(request, handler));
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request,
      HttpResponse.BodyHandler<T> handler,
      HttpResponse.PushPromiseHandler<T> pushes) {
    return sendAsync(request, 0, () -> base.sendAsync(request, handler, pushes));
  }

  private <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request,
      int attempt,
      java.util.function.Supplier<CompletableFuture<HttpResponse<T>>> send) {
    long wait = pace.departure(origin(request.uri()), System.nanoTime());
    CompletableFuture<HttpResponse<T>> sent =
        wait <= 0
            ? send.get()
            : CompletableFuture.supplyAsync(
                    send, CompletableFuture.delayedExecutor(wait, TimeUnit.NANOSECONDS))
                .thenCompose(Function.identity());
    return sent.thenCompose(
        response -> {
          learn(request, response);
          if (!repeats(request, response, attempt)) {
            return CompletableFuture.completedFuture(response);
          }
          discard(response.body());
          return sendAsync(request, attempt + 1, send);
        });
  }

  @Override
  public Optional<CookieHandler> cookieHandler() {
    return base.cookieHandler();
  }

  @Override
  public Optional<Duration> connectTimeout() {
    return base.connectTimeout();
  }

  @Override
  public Redirect followRedirects() {
    return base.followRedirects();
  }

  @Override
  public Optional<ProxySelector> proxy() {
    return base.proxy();
  }

  @Override
  public SSLContext sslContext() {
    return base.sslContext();
  }

  @Override
  public SSLParameters sslParameters() {
    return base.sslParameters();
  }

  @Override
  public Optional<Authenticator> authenticator() {
    return base.authenticator();
  }

  @Override
  public Version version() {
    return base.version();
  }

  @Override
  public Optional<Executor> executor() {
    return base.executor();
  }
}
