package io.github.tidegate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** Reads a reply's body up to a bound. */
final class BoundedBody implements HttpResponse.BodyHandler<byte[]> {
  /** How much of a reply is read. */
  private static final int MAX_BYTES = 4 << 20;

  /** The body is longer. */
  static final class TooLong extends IOException {
    private static final long serialVersionUID = 1L;

    TooLong() {
      super("the reply has more than " + MAX_BYTES + " bytes");
    }
  }

  @Override
  public HttpResponse.BodySubscriber<byte[]> apply(HttpResponse.ResponseInfo head) {
    return new Collector();
  }

  private static final class Collector implements HttpResponse.BodySubscriber<byte[]> {
    private final CompletableFuture<byte[]> body = new CompletableFuture<>();
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(512);
    private Flow.Subscription subscription;

    @Override
    public CompletionStage<byte[]> getBody() {
      return body;
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
      subscription = given;
      given.request(Long.MAX_VALUE);
    }

    @Override
    public void onNext(List<ByteBuffer> pieces) {
      for (ByteBuffer piece : pieces) {
        if (bytes.size() + piece.remaining() > MAX_BYTES) {
          subscription.cancel();
          body.completeExceptionally(new TooLong());
          return;
        }
        byte[] copy = new byte[piece.remaining()];
        piece.get(copy);
        bytes.writeBytes(copy);
      }
    }

    @Override
    public void onError(Throwable error) {
      body.completeExceptionally(error);
    }

    @Override
    public void onComplete() {
      body.complete(bytes.toByteArray());
    }
  }
}
