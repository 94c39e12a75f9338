package io.github.tidegate.spring;

import io.github.tidegate.Options;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code tidegate.*}. What is absent has the client's default.
 *
 * @param url where the service is
 * @param token the client's token
 * @param deadline bounds each call
 * @param onFailure what is answered without the service
 * @param fallback the limit of on-failure: local
 * @param batch whether concurrent calls are sent together
 * @param filter the filter's properties
 */
@ConfigurationProperties("tidegate")
public record TidegateProperties(
    String url,
    String token,
    Duration deadline,
    Options.OnFailure onFailure,
    Fallback fallback,
    boolean batch,
    @DefaultValue Filter filter) {

  /**
   * The properties {@code tidegate.fallback.*}.
   *
   * @param limit units per window
   * @param window the window
   * @param share this process' part
   * @param key the attributes that are counted by
   * @param keys how many are kept
   */
  public record Fallback(
      long limit,
      Duration window,
      @DefaultValue("1") double share,
      @DefaultValue("client_id") List<String> key,
      @DefaultValue("10000") int keys) {}

  /**
   * The properties {@code tidegate.filter.*}.
   *
   * @param enabled whether there is a filter
   * @param patterns URL patterns that it is for
   * @param order its place among filters; low ones come first
   */
  public record Filter(
      @DefaultValue("true") boolean enabled,
      @DefaultValue("/*") List<String> patterns,
      @DefaultValue("0") int order) {}

  void apply(Options options) {
    if (url != null) {
      options.url(url);
    }
    if (token != null) {
      options.token(token);
    }
    if (deadline != null) {
      options.deadline(deadline);
    }
    if (fallback != null) {
      options.fallback(
          new Options.Fallback(
              fallback.limit, fallback.window, fallback.share, fallback.key, fallback.keys));
    }
    if (onFailure != null) {
      options.onFailure(onFailure);
    }
    options.batch(batch);
  }
}
