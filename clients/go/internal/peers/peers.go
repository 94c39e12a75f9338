// Package peers says how an address is written where it names a client: as the server writes it for /v1/check.
package peers

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// networkBits is how much of an IPv6 address one customer has at least.
const networkBits = 64

// Name is the address of a peer without its port: an IPv6 one as its /64. What is no address stays as it is.
func Name(peer string) string {
	host := peer
	if split, _, err := net.SplitHostPort(peer); err == nil {
		host = split
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(networkBits)
	if err != nil {
		return host // Unreachable: an IPv6 address has so many bits.
	}
	return network.String()
}

// Forwarded warns, once, of requests that say that they came by a proxy, where nobody has made that their address.
func Forwarded(once *sync.Once, forwarded, peer, trust string) {
	name := Name(peer)
	if forwarded == "" {
		return
	}
	for entry := range strings.SplitSeq(forwarded, ",") {
		if Name(strings.TrimSpace(entry)) == name {
			return
		}
	}
	once.Do(func() {
		slog.Warn("tidegate: requests come with X-Forwarded-For, which is not trusted: they are counted by their peer's address. "+
			"If a proxy sends it, "+trust+", or set Options.Key", "address", name)
	})
}
