// Package tidegate asks a Tidegate service whether a request may go ahead.
//
//	client, err := tidegate.New()
//	...
//	decision, err := client.Allow(ctx, tidegate.Attributes{"client_id": user, "resource": "api"})
//	if err == nil && !decision.Allowed {
//		// Try again in decision.RetryAfterSeconds.
//	}
//
// A client is never the reason of an outage: a call ends within its deadline (50 ms), a server that gives no
// answer is no longer asked for a while, and [Options.OnFailure] says what is answered meanwhile. A denied
// client costs no round trip until its wait is over.
//
// Package tidegatehttp has a middleware for net/http and a transport for clients of any API that limits them,
// package rate a replacement for golang.org/x/time/rate, and the module tidegategrpc interceptors.
package tidegate
