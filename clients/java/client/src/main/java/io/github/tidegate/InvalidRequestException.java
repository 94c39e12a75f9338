package io.github.tidegate;

/** The request itself is wrong, which is its author's mistake: asking again changes nothing. */
public final class InvalidRequestException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final transient Problem problem;
  private final int status;

  InvalidRequestException(int status, Problem problem) {
    super("the request is wrong (" + status + "): " + problem.detail() + mistakes(problem));
    this.status = status;
    this.problem = problem;
  }

  private static String mistakes(Problem problem) {
    StringBuilder text = new StringBuilder();
    problem
        .errors()
        .forEach(
            error -> text.append("; ").append(error.pointer()).append(' ').append(error.detail()));
    return text.toString();
  }

  /** 400, 413 or 422. */
  public int status() {
    return status;
  }

  /** The server's document. */
  public Problem problem() {
    return problem;
  }
}
