package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
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
}
