package io.github.tidegate.servlet;

import io.github.tidegate.Bounded;
import io.github.tidegate.Charge;
import io.github.tidegate.Decision;
import io.github.tidegate.Denial;
import io.github.tidegate.InvalidRequestException;
import io.github.tidegate.Request;
import io.github.tidegate.Tidegate;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;

/**
 * Lets requests through, or answers them with a denial, as a Tidegate service decides.
 *
 * <p>What it asks is set by methods that return this, before it is used.
 */
public final class TidegateFilter implements Filter {
  private static final String CHARGE = TidegateFilter.class.getName() + ".charge";
  private static final String USED = TidegateFilter.class.getName() + ".used";

  private final Tidegate client;
  private Function<HttpServletRequest, Map<String, String>> attributes =
      TidegateFilter::pathAndMethod;
  private Function<HttpServletRequest, String> key = ServletRequest::getRemoteAddr;
  private ToLongFunction<HttpServletRequest> cost = request -> 1;
  private Predicate<HttpServletRequest> skip = request -> false;
  private Duration maxDelay = Duration.ofSeconds(1);

  /** A filter that asks by this client. */
  public TidegateFilter(Tidegate client) {
    this.client = client;
  }

  /**
   * What is known of a request: its path and its method. A client_id among them counts instead of
   * the key, and what is null is left out.
   */
  public TidegateFilter attributes(Function<HttpServletRequest, Map<String, String>> function) {
    attributes = function;
    return this;
  }

  /**
   * What becomes client_id: the peer's address, as the connection states it. Those of whom the
   * function knows nothing (null) are one client, whose name is empty.
   */
  public TidegateFilter key(Function<HttpServletRequest, String> function) {
    key = function;
    return this;
  }

  /** How many units a request takes, or the most that it can take, see {@link #settle}: 1. */
  public TidegateFilter cost(ToLongFunction<HttpServletRequest> function) {
    cost = function;
    return this;
  }

  /** Which requests are not limited: none. */
  public TidegateFilter skip(Predicate<HttpServletRequest> predicate) {
    skip = predicate;
    return this;
  }

  /** How long a request is held back at most where a leaky bucket says so: a second. */
  public TidegateFilter maxDelay(Duration longest) {
    maxDelay = longest;
    return this;
  }

  /**
   * Says how many of the units that {@link #cost} reserved a request has used. The last call
   * counts, and what is left is given back when the response has ended.
   */
  public static void settle(ServletRequest request, long used) {
    request.setAttribute(USED, Math.max(0, used));
  }

  @Override
  public void doFilter(ServletRequest any, ServletResponse reply, FilterChain chain)
      throws IOException, ServletException {
    // A dispatch within a request that was asked about is not another request.
    if (!(any instanceof HttpServletRequest request)
        || !(reply instanceof HttpServletResponse response)
        || request.getAttribute(CHARGE) != null
        || skip.test(request)) {
      chain.doFilter(any, reply);
      return;
    }
    Charge charge;
    try {
      charge = client.reserve(request(request));
    } catch (InvalidRequestException invalid) {
      deny(response, Denial.of(invalid));
      return;
    }
    Decision decision = charge.decision();
    if (!decision.allowed()) {
      deny(response, Denial.of(decision));
      return;
    }
    hold(decision);
    Denial.described(decision).forEach(response::setHeader);
    request.setAttribute(CHARGE, charge);
    try {
      chain.doFilter(request, response);
    } finally {
      if (request.isAsyncStarted()) {
        request.getAsyncContext().addListener(new AtTheEnd(charge, request));
      } else {
        end(charge, request);
      }
    }
  }

  static Map<String, String> pathAndMethod(HttpServletRequest request) {
    return Map.of("path", request.getRequestURI(), "method", request.getMethod());
  }

  private Request request(HttpServletRequest request) {
    Map<String, String> known = new HashMap<>();
    known.put("client_id", Bounded.value(key.apply(request)));
    attributes
        .apply(request)
        .forEach(
            (name, value) -> {
              if (value != null) {
                known.put(name, Bounded.value(value));
              }
            });
    return Request.of(known).cost(cost.applyAsLong(request));
  }

  private void hold(Decision decision) {
    try {
      Thread.sleep(Math.min(decision.delay().toMillis(), maxDelay.toMillis()));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt(); // The server ends: the request goes on at once.
    }
  }

  private static void deny(HttpServletResponse response, Denial denial) throws IOException {
    byte[] body = denial.body().getBytes(StandardCharsets.UTF_8);
    denial.fields().forEach(response::setHeader);
    response.setStatus(denial.status());
    response.setContentLength(body.length);
    response.getOutputStream().write(body);
  }

  /** Gives back what was not used, while the response goes out. */
  private static void end(Charge charge, ServletRequest request) {
    if (request.getAttribute(USED) instanceof Long used) {
      charge.settle(used);
    }
  }

  /** Waits for the end of a response that goes on without its servlet. */
  private record AtTheEnd(Charge charge, ServletRequest request) implements AsyncListener {
    @Override
    public void onComplete(AsyncEvent event) {
      end(charge, request);
    }

    @Override
    public void onTimeout(AsyncEvent event) {
      // onComplete follows.
    }

    @Override
    public void onError(AsyncEvent event) {
      // onComplete follows.
    }

    @Override
    public void onStartAsync(AsyncEvent event) {
      event.getAsyncContext().addListener(this);
    }
  }
}
