package tidegate

import (
	"context"
	"time"
)

// Stats are counts since the client was made.
type Stats struct {
	// Server, Cache and Fallback count decisions by who answered.
	Server, Cache, Fallback uint64
	// ConnectionsFull counts calls that found all connections in use until their deadline.
	ConnectionsFull uint64
	// DenialsEvicted and FallbackEvicted count what left a full table.
	DenialsEvicted, FallbackEvicted uint64
	// BreakerOpen says that the server is not asked now.
	BreakerOpen bool
}

// Stats returns what the client has counted.
func (client *Client) Stats() Stats {
	return Stats{
		Server: client.fromServer.Load(), Cache: client.fromCache.Load(), Fallback: client.fromFallback.Load(),
		ConnectionsFull: client.full.Load(),
		DenialsEvicted:  client.denials.evictions(), FallbackEvicted: client.fallback.evictions(),
		BreakerOpen: client.breaker.isOpen(),
	}
}

func (client *Client) count(source Source) {
	switch source {
	case FromServer:
		client.fromServer.Add(1)
	case FromCache:
		client.fromCache.Add(1)
	default:
		client.fromFallback.Add(1)
	}
}

func (client *Client) tellDecision(ctx context.Context, operation string, decision *Decision, err error, started time.Time) {
	event := Event{
		Operation: operation, Outcome: "denied", Source: decision.Source, Failure: decision.Failure,
		Policy: decision.Policy, Count: 1,
	}
	switch {
	case err != nil:
		event.Outcome = "failed"
	case decision.Allowed:
		event.Outcome = "allowed"
	}
	if err == nil {
		client.count(decision.Source)
	}
	client.tell(ctx, event, started)
}

func (client *Client) tell(ctx context.Context, event Event, started time.Time) {
	if client.options.OnEvent == nil {
		return
	}
	event.Duration = time.Since(started)
	defer func() { _ = recover() }() // A hook is never the reason of an outage.
	client.options.OnEvent(ctx, event)
}
