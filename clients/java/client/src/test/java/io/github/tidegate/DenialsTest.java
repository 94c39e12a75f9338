package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class DenialsTest {
  @Test
  void aDenialThatIsOlderThanARefundIsNotKept() throws Json.Malformed {
    Denials denials = new Denials(10, TimeUnit.MINUTES.toNanos(1));
    Request request = Request.of("client_id", "a");
    Decision denied =
        Decision.read(Map.of("allowed", false, "policies", List.of(), "retry_after_ms", 1000L));
    long asked = denials.asked();
    denials.forget(request.attributes());
    denials.remember(request, denied, asked, 0);
    assertTrue(denials.find(request, 0).isEmpty());
    denials.remember(request, denied, denials.asked(), 0);
    assertEquals(Decision.Source.CACHE, denials.find(request, 0).orElseThrow().source());
    assertTrue(denials.find(request, TimeUnit.SECONDS.toNanos(1)).isEmpty());
  }

  @Test
  void aRememberedDenialStatesWhatIsLeftOfItsWait() throws Json.Malformed {
    Denials denials = new Denials(10, TimeUnit.MINUTES.toNanos(1));
    Request request = Request.of("client_id", "a");
    Map<String, Object> part =
        Map.of(
            "policy", "three",
            "mode", "enforce",
            "allowed", false,
            "limit", 3L,
            "remaining", 0L,
            "retry_after_ms", 1_200_000L,
            "reset_ms", 3_600_000L);
    Map<String, Object> denied =
        Map.of(
            "allowed",
            false,
            "policies",
            List.of(part),
            "retry_after_ms",
            1_200_000L,
            "reset_ms",
            3_600_000L);
    Decision decision =
        Decision.read(denied)
            .described(Optional.of("\"three\";q=3;w=3600"), Optional.of("\"three\";r=0;t=1200"));
    denials.remember(request, decision, denials.asked(), 0);
    Decision found = denials.find(request, TimeUnit.MILLISECONDS.toNanos(30_500)).orElseThrow();
    assertEquals(1_169_500, found.retryAfterMs().getAsLong());
    assertEquals(1_170, found.retryAfter().getAsLong());
    assertEquals(3_569_500, found.resetMs().getAsLong());
    assertEquals(1_169_500, found.policies().get(0).retryAfterMs().getAsLong());
    assertEquals(
        Map.of("RateLimit-Policy", "\"three\";q=3;w=3600", "RateLimit", "\"three\";r=0;t=1170"),
        Denial.described(found));
    assertTrue(denials.find(request, TimeUnit.MINUTES.toNanos(1)).isEmpty());
  }
}
