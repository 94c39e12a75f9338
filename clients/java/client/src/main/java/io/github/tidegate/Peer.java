package io.github.tidegate;

import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** How an address is written where it names a client: as the server writes it for /v1/check. */
public final class Peer {
  /** An address in brackets or of version 4, with its port. */
  private static final Pattern PORT = Pattern.compile("\\[([^\\]]*)\\](?::\\d+)?|([\\d.]+):\\d+");

  private static final Pattern IPV4 = Pattern.compile("(\\d{1,3})(\\.\\d{1,3}){3}");

  private Peer() {}

  /**
   * The address of a peer: an IPv6 one as its /64, since that is what one customer has. What is no
   * address stays as it is.
   */
  public static String name(String address) {
    Matcher port = PORT.matcher(address);
    String bare = address;
    if (port.matches()) {
      bare = port.group(1) == null ? port.group(2) : port.group(1);
    }
    bare = bare.split("%", 2)[0];
    if (bare.indexOf(':') < 0 && !IPV4.matcher(bare).matches()) {
      return address;
    }
    try {
      // Nothing is looked up: this is no name.
      InetAddress known = InetAddress.getByName(bare);
      return known instanceof Inet4Address ? known.getHostAddress() : network(known.getAddress());
    } catch (UnknownHostException noAddress) {
      return address;
    }
  }

  /** Whether a field X-Forwarded-For has this address. */
  public static boolean isIn(String forwarded, String address) {
    String wanted = name(address);
    return Arrays.stream(forwarded.split(",")).anyMatch(entry -> name(entry.trim()).equals(wanted));
  }

  /** In the one spelling of RFC 5952: the lower half is the longest run of zeros. */
  private static String network(byte[] address) {
    ByteBuffer groups = ByteBuffer.wrap(address);
    int shown = 4;
    while (shown > 0 && groups.getShort(2 * (shown - 1)) == 0) {
      shown--;
    }
    StringBuilder text = new StringBuilder();
    for (int group = 0; group < shown; group++) {
      text.append(group == 0 ? "" : ":")
          .append(Integer.toHexString(groups.getShort(2 * group) & 0xFFFF));
    }
    return text.append("::/64").toString();
  }
}
