package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

class PeerTest {
  @Test
  void aPeerHasOneName() {
    for (Object item : Document.list(Document.read().get("addresses"))) {
      Map<String, Object> one = Document.object(item);
      assertEquals(one.get("name"), Peer.name((String) one.get("peer")));
    }
  }

  @Test
  void aProxyThatIsTrustedHasMadeItsClientsAddressTheRequests() {
    assertTrue(Peer.isIn("192.0.2.1, 2001:db8::1", "2001:db8:0:0::2"));
    assertFalse(Peer.isIn("192.0.2.1", "10.0.0.1"));
  }
}
