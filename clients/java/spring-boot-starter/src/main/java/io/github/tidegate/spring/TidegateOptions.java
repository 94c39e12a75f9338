package io.github.tidegate.spring;

import io.github.tidegate.Options;

/** A bean that changes the client's options, after the properties. */
@FunctionalInterface
public interface TidegateOptions {
  /** Changes them. */
  void apply(Options options);
}
