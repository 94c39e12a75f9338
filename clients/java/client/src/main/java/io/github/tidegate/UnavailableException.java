package io.github.tidegate;

/** The server gave no answer to a call that has no other: {@link Tidegate#explain}. */
public final class UnavailableException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final Failure failure;

  /** Whether it says something about the server. */
  private final boolean ofServer;

  UnavailableException(Failure failure, String what) {
    this(failure, what, null, true);
  }

  UnavailableException(Failure failure, String what, Throwable cause, boolean ofServer) {
    // Without a stack trace: it is made for each call while the server is away, and says where it
    // comes from.
    super("no answer (" + failure.word() + "): " + what, cause, false, false);
    this.failure = failure;
    this.ofServer = ofServer;
  }

  /** Why. */
  public Failure failure() {
    return failure;
  }

  boolean ofServer() {
    return ofServer;
  }
}
