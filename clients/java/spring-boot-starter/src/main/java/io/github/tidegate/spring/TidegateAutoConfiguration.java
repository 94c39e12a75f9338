package io.github.tidegate.spring;

import io.github.tidegate.Tidegate;
import io.github.tidegate.servlet.TidegateFilter;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.util.function.SingletonSupplier;
import org.springframework.web.util.pattern.PathPatternParser;

/**
 * Makes a client, and a filter for every request. An application that has a {@link Tidegate} or a
 * {@link TidegateFilter} of its own keeps it; one that has {@link TidegateOptions} changes the
 * client's options.
 */
@AutoConfiguration
@EnableConfigurationProperties(TidegateProperties.class)
public class TidegateAutoConfiguration {
  /** Made by Spring. */
  public TidegateAutoConfiguration() {}

  /** The client. */
  @Bean
  @ConditionalOnMissingBean
  public Tidegate tidegate(TidegateProperties properties, ObjectProvider<TidegateOptions> changes) {
    return Tidegate.create(
        options -> {
          properties.apply(options);
          changes.orderedStream().forEach(change -> change.apply(options));
        });
  }

  /** What the filter asks. */
  @Bean
  @ConditionalOnMissingBean
  @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
  public TidegateFilter tidegateFilter(Tidegate client) {
    return new TidegateFilter(client);
  }

  /** Where the filter stands. It sends paths in lower case if the application ignores case. */
  @Bean
  @ConditionalOnMissingBean(name = "tidegateFilterRegistration")
  @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
  @ConditionalOnProperty(name = "tidegate.filter.enabled", matchIfMissing = true)
  public FilterRegistrationBean<TidegateFilter> tidegateFilterRegistration(
      TidegateFilter filter,
      TidegateProperties properties,
      ObjectProvider<PathPatternParser> parsers) {
    // Not before the first request: a filter is made before the application's handlers.
    SingletonSupplier<Boolean> ignoresCase =
        SingletonSupplier.of(() -> parsers.stream().anyMatch(parser -> !parser.isCaseSensitive()));
    filter.ignoringCase(ignoresCase::obtain);
    FilterRegistrationBean<TidegateFilter> registration = new FilterRegistrationBean<>(filter);
    registration.setUrlPatterns(properties.filter().patterns());
    registration.setOrder(properties.filter().order());
    registration.setAsyncSupported(true);
    return registration;
  }
}
