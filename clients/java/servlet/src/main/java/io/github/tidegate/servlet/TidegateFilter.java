package io.github.tidegate.servlet;

import io.github.tidegate.Bounded;
import io.github.tidegate.Charge;
import io.github.tidegate.Decision;
import io.github.tidegate.Denial;
import io.github.tidegate.Peer;
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
import java.util.Collections;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import java.util.regex.Pattern;

/**
 * Lets requests through, or answers them with a denial, as a Tidegate service decides.
 *
 * <p>What it asks is set by methods that return this, before it is used.
 */
public final class TidegateFilter implements Filter {
  private static final String CHARGE = TidegateFilter.class.getName() + ".charge";
  private static final String USED = TidegateFilter.class.getName() + ".used";

  /** Longest path that is asked for. It is sent whole: a policy could not see what was cut off. */
  private static final int MAX_PATH_BYTES = 16_384;

  /** Targets that are no path: the asterisk form, and a URL with its scheme. */
  private static final Pattern OTHER_FORM = Pattern.compile("\\*\\z|[A-Za-z][A-Za-z0-9+.-]*://");

  private static final Pattern UPPER_CASE = Pattern.compile("%(4[1-9A-Fa-f]|5[0-9Aa])");

  /** What a script of another origin may read of a denial. */
  private static final String READABLE = "RateLimit, RateLimit-Policy, Retry-After";

  private final Tidegate client;
  private final AtomicBoolean forwarded = new AtomicBoolean();
  private Function<HttpServletRequest, Map<String, String>> attributes = this::pathAndMethod;
  private BooleanSupplier ignoringCase = () -> false;
  private Function<HttpServletRequest, String> key = this::peer;
  private ToLongFunction<HttpServletRequest> cost = request -> 1;
  private Predicate<HttpServletRequest> skip = request -> false;
  private Duration maxDelay = Duration.ofSeconds(1);

  /** A filter that asks by this client. */
  public TidegateFilter(Tidegate client) {
    this.client = client;
  }

  /**
   * What is known of a request: its {@link #path} and its method. A client_id among them counts
   * instead of the key, and what is null is left out.
   */
  public TidegateFilter attributes(Function<HttpServletRequest, Map<String, String>> function) {
    attributes = function;
    return this;
  }

  /**
   * What becomes client_id: the peer's address as the container states it, of IPv6 the /64. Those
   * of whom the function knows nothing (null) are one client, whose name is empty.
   */
  public TidegateFilter key(Function<HttpServletRequest, String> function) {
    key = function;
    return this;
  }

  /**
   * Whether the application routes without regard to case: then the path is sent in lower case, and
   * policies are to be written so. It does if any that was given here says so.
   */
  public TidegateFilter ignoringCase(BooleanSupplier whether) {
    BooleanSupplier before = ignoringCase;
    ignoringCase = () -> before.getAsBoolean() || whether.getAsBoolean();
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
    Request asked = request(request);
    if (asked.attributes().getOrDefault("path", "").length() > MAX_PATH_BYTES) {
      deny(request, response, Denial.tooLong(MAX_PATH_BYTES));
      return;
    }
    Charge charge = client.admit(asked);
    Decision decision = charge.decision();
    if (!decision.allowed()) {
      deny(request, response, Denial.of(decision));
      return;
    }
    hold(decision);
    Denial.described(decision).forEach(response::setHeader);
    request.setAttribute(CHARGE, charge);
    try {
      chain.doFilter(request, response);
    } finally {
      if (request.isAsyncStarted()) {
        request.getAsyncContext().addListener(new AtTheEnd(charge, request, response));
      } else {
        end(charge, request, response);
      }
    }
  }

  /** The path of a request as it was sent, with its context and its parameters. */
  public static String path(HttpServletRequest request) {
    String sent = request.getRequestURI();
    if (sent == null || sent.isEmpty()) {
      return "/";
    }
    StringBuilder path = new StringBuilder(sent.length() + 1);
    // Tomcat decodes %2Fpay to the path of a handler, where it may.
    if (!sent.startsWith("/") && !OTHER_FORM.matcher(sent).lookingAt()) {
      path.append('/');
    }
    // Containers have a byte outside ASCII as a character of Latin-1.
    sent.chars()
        .forEach(
            unit -> {
              if (unit < 0x80 || unit > 0xFF) {
                path.append((char) unit);
              } else {
                path.append(String.format("%%%02X", unit));
              }
            });
    return path.toString();
  }

  Map<String, String> pathAndMethod(HttpServletRequest request) {
    String path = path(request);
    return Map.of(
        "path", ignoringCase.getAsBoolean() ? lower(path) : path, "method", request.getMethod());
  }

  /** In lower case, letters that are escaped, too. */
  private static String lower(String path) {
    return UPPER_CASE
        .matcher(path)
        .replaceAll(escape -> "" + (char) Integer.parseInt(escape.group(1), 16))
        .toLowerCase(Locale.ROOT);
  }

  private String peer(HttpServletRequest request) {
    String address = request.getRemoteAddr();
    String stated = String.join(",", Collections.list(request.getHeaders("X-Forwarded-For")));
    if (!stated.isEmpty() && !Peer.isIn(stated, address) && !forwarded.getAndSet(true)) {
      System.getLogger("io.github.tidegate")
          .log(
              System.Logger.Level.WARNING,
              "requests come with X-Forwarded-For, which is not trusted: they are counted by the"
                  + " address "
                  + address
                  + ". If a proxy sends it, let the container trust it (Spring:"
                  + " server.forward-headers-strategy), or set the filter's key");
    }
    return Peer.name(address);
  }

  private Request request(HttpServletRequest request) {
    Map<String, String> known = new HashMap<>();
    known.put("client_id", Bounded.value(key.apply(request)));
    attributes
        .apply(request)
        .forEach(
            (name, value) -> {
              if (value != null) {
                known.put(name, name.equals("path") ? Bounded.path(value) : Bounded.value(value));
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

  private static void deny(HttpServletRequest request, HttpServletResponse response, Denial denial)
      throws IOException {
    byte[] body = denial.body().getBytes(StandardCharsets.UTF_8);
    denial.fields().forEach(response::setHeader);
    // Where the application lets scripts of other origins read replies at all, they read why.
    String exposed = "Access-Control-Expose-Headers";
    if (request.getHeader("Origin") != null && !response.containsHeader(exposed)) {
      response.setHeader(exposed, READABLE);
    }
    response.setStatus(denial.status());
    response.setContentLength(body.length);
    response.getOutputStream().write(body);
  }

  private static boolean isPreflight(HttpServletRequest request) {
    return request.getMethod().equals("OPTIONS")
        && request.getHeader("Origin") != null
        && request.getHeader("Access-Control-Request-Method") != null;
  }

  /**
   * Gives back what was not used, while the response goes out: all of it where the application's
   * CORS has answered a preflight.
   */
  private static void end(Charge charge, HttpServletRequest request, HttpServletResponse response) {
    if (isPreflight(request) && response.containsHeader("Access-Control-Allow-Methods")) {
      charge.settle(0);
    } else if (request.getAttribute(USED) instanceof Long used) {
      charge.settle(used);
    }
  }

  /** Waits for the end of a response that goes on without its servlet. */
  private record AtTheEnd(Charge charge, HttpServletRequest request, HttpServletResponse response)
      implements AsyncListener {
    @Override
    public void onComplete(AsyncEvent event) {
      end(charge, request, response);
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
