// Package tidegategrpc limits a gRPC server's clients.
//
//	limits := tidegategrpc.New(client)
//	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
//
// A call that is denied ends with RESOURCE_EXHAUSTED and says when to try again (google.rpc.RetryInfo). The header
// metadata has ratelimit and ratelimit-policy.
package tidegategrpc

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/peers"
	"github.com/tidegate/tidegate/clients/go/tidegatehttp"
)

// Options says what is asked about a call. [New] fills in the defaults before it hands them to the functions that
// change them. A method is its full name, as in /grpc.health.v1.Health/Check.
type Options struct {
	// Attributes are what is known of a call: its method as path, and POST as method, as HTTP/2 has them.
	Attributes func(ctx context.Context, method string) tidegate.Attributes
	// Key becomes client_id: the peer's address, of IPv6 the /64.
	Key func(ctx context.Context) string
	// Cost is how many units a call takes, or the most that it can take, see [Settle]: 1.
	Cost func(ctx context.Context, method string) int64
	// Skip says which methods are not limited: none.
	Skip func(method string) bool
	// MaxDelay is how long a call is held back at most where a leaky bucket says so: a second.
	MaxDelay time.Duration
}

func defaults() Options {
	once := &sync.Once{}
	return Options{
		Attributes: func(_ context.Context, method string) tidegate.Attributes {
			// Older servers take methods without their slash.
			return tidegate.Attributes{"path": "/" + strings.TrimPrefix(method, "/"), "method": http.MethodPost}
		},
		Key: func(ctx context.Context) string {
			caller, is := peer.FromContext(ctx)
			if !is {
				return ""
			}
			known, _ := metadata.FromIncomingContext(ctx)
			forwarded := strings.Join(known.Get("x-forwarded-for"), ",")
			peers.Forwarded(once, forwarded, caller.Addr.String(), "read the field there")
			return peers.Name(caller.Addr.String())
		},
		Cost:     func(context.Context, string) int64 { return 1 },
		Skip:     func(string) bool { return false },
		MaxDelay: time.Second,
	}
}

// Limits has the interceptors of a server.
type Limits struct {
	client  *tidegate.Client
	options Options
}

// New makes the interceptors of a server. Each function may change the options that it is given.
func New(client *tidegate.Client, change ...func(*Options)) *Limits {
	options := defaults()
	for _, apply := range change {
		apply(&options)
	}
	return &Limits{client: client, options: options}
}

type usedKey struct{}

// unsettled is what `used` is before [Settle].
const unsettled = -1

// Settle says how many of the units that [Options.Cost] reserved a call has used. The last call counts, and what is
// left is given back when the handler has returned. ctx is the call's.
func Settle(ctx context.Context, used int64) {
	if units, is := ctx.Value(usedKey{}).(*atomic.Int64); is {
		units.Store(max(used, 0))
	}
}

// Unary is a grpc.UnaryServerInterceptor.
func (limits *Limits) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, end, err := limits.begin(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, request)
}

// Stream is a grpc.StreamServerInterceptor.
func (limits *Limits) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end, err := limits.begin(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer end()
	return handler(server, &streamWithContext{ServerStream: stream, ctx: ctx})
}

type streamWithContext struct {
	grpc.ServerStream

	ctx context.Context
}

func (stream *streamWithContext) Context() context.Context { return stream.ctx }

// begin asks about a call. What it returns ends it: it gives back what was not used.
func (limits *Limits) begin(ctx context.Context, method string) (context.Context, func(), error) {
	options := &limits.options
	if options.Skip(method) {
		return ctx, func() {}, nil
	}
	attributes := tidegate.Attributes{"client_id": tidegate.Bounded(options.Key(ctx))}
	for name, value := range options.Attributes(ctx, method) {
		attributes[name] = tidegate.Bounded(value)
	}
	charge := limits.client.Admit(ctx, attributes, options.Cost(ctx, method))
	describe(ctx, &charge.Decision)
	if !charge.Allowed {
		return nil, nil, denied(&charge.Decision)
	}
	if err := hold(ctx, min(charge.Delay(), options.MaxDelay)); err != nil {
		charge.Settle(ctx, 0)
		return nil, nil, err
	}
	used := &atomic.Int64{}
	used.Store(unsettled)
	ctx = context.WithValue(ctx, usedKey{}, used)
	return ctx, func() {
		if units := used.Load(); units != unsettled {
			// Not before the end of the reply, which leaves when the handler has returned.
			go charge.Settle(ctx, units)
		}
	}, nil
}

func hold(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// describe puts a decision's fields into the header metadata.
func describe(ctx context.Context, decision *tidegate.Decision) {
	fields := http.Header{}
	tidegatehttp.Describe(fields, decision)
	pairs := metadata.MD{}
	for name := range fields {
		pairs.Set(name, fields.Get(name))
	}
	if decision.RetryAfterSeconds > 0 {
		pairs.Set("retry-after", strconv.FormatInt(decision.RetryAfterSeconds, 10))
	}
	if len(pairs) > 0 {
		_ = grpc.SetHeader(ctx, pairs) // It fails only where the header was sent, and nothing was yet.
	}
}

func denied(decision *tidegate.Decision) error {
	code, text := codes.ResourceExhausted, "the quota of a policy is used up"
	switch {
	case decision.Source == tidegate.FromFallback && decision.Degraded == string(tidegate.FailClosed):
		code, text = codes.Unavailable, "the rate limit cannot be checked"
	case decision.NoMatch:
		return status.Error(codes.PermissionDenied, "no policy applies to the request")
	}
	reply := status.New(code, text)
	if wait, waits := decision.RetryAfter(); waits {
		if detailed, err := reply.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			reply = detailed
		}
	}
	return reply.Err()
}
