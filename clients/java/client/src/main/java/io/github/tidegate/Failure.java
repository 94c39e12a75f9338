package io.github.tidegate;

import java.util.Locale;

/** Why the server did not answer. */
public enum Failure {
  /** No answer came before the deadline. */
  TIMEOUT,
  /** It could not be reached, or the connection broke off. */
  CONNECTION,
  /** The reply's status was not 200. */
  STATUS,
  /** The reply was no reply of the API. */
  REPLY,
  /** Nothing was asked, because the server failed before. */
  BREAKER,
  /** The waiting thread was interrupted, the future was cancelled, or the client was closed. */
  CANCELLED;

  /** As events and documents name it. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
