package tidegategrpc_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/tidegategrpc"
)

// settling is a health service that says that its watchers have used one unit, and tells "endless" of it without end.
type settling struct{ *health.Server }

func (service settling) Watch(request *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	tidegategrpc.Settle(stream.Context(), 1)
	if request.GetService() == "endless" {
		for stream.Context().Err() == nil {
			_ = stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
		}
		return stream.Context().Err()
	}
	return stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
}

// start starts the service and a gRPC server that it limits: three units an hour for each client.
func start(t *testing.T, change func(*tidegate.Options)) (healthpb.HealthClient, *testserver.Server) {
	t.Helper()
	return startWith(t, `
[[policy]]
name = "calls"
algorithm = "token_bucket"
limit = 3
window_seconds = 3600
`, change)
}

func startWith(t *testing.T, config string, change func(*tidegate.Options)) (healthpb.HealthClient, *testserver.Server) {
	t.Helper()
	service := testserver.StartWith(t, config)
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Deadline = service.URL, 10*time.Second
		change(options)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	limits := tidegategrpc.New(client, func(options *tidegategrpc.Options) {
		options.Key = func(ctx context.Context) string {
			known, _ := metadata.FromIncomingContext(ctx)
			return known.Get("client")[0]
		}
		options.Cost = func(_ context.Context, method string) int64 {
			if method == healthpb.Health_Watch_FullMethodName {
				return 3
			}
			return 1
		}
		options.Skip = func(method string) bool { return method == healthpb.Health_List_FullMethodName }
	})
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	healthpb.RegisterHealthServer(server, settling{health.NewServer()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return healthpb.NewHealthClient(connection), service
}

func as(client string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "client", client)
}

func TestDeniesWhoHasUsedUpTheQuota(t *testing.T) {
	calls, _ := start(t, func(*tidegate.Options) {})
	var header metadata.MD
	for range 3 {
		if _, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
	}
	if policy := header.Get("ratelimit-policy"); len(policy) != 1 || policy[0] != `"calls";q=3;w=3600` {
		t.Errorf("the header says %v", header)
	}
	_, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}, grpc.Header(&header))
	reply := status.Convert(err)
	if reply.Code() != codes.ResourceExhausted || len(reply.Details()) != 1 {
		t.Fatalf("%v", err)
	}
	delay := reply.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration()
	if delay <= 0 || delay > 20*time.Minute || len(header.Get("retry-after")) != 1 {
		t.Errorf("try again after %v; the header says %v", delay, header)
	}
	if _, err := calls.List(as("a"), &healthpb.HealthListRequest{}); err != nil {
		t.Errorf("a skipped method: %v", err)
	}
	if _, err := calls.Check(as("b"), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("another client: %v", err)
	}
}

func TestAsksForSeveralPolicies(t *testing.T) {
	calls, _ := startWith(t, `
[[policy]]
name = "hour"
algorithm = "token_bucket"
limit = 2
window_seconds = 3600

[[policy]]
name = "day"
algorithm = "fixed_window"
limit = 9
window_seconds = 86400
`, func(*tidegate.Options) {})
	var header metadata.MD
	for range 2 {
		if _, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
	}
	if policy := header.Get("ratelimit-policy"); len(policy) != 1 || policy[0] != `"hour";q=2;w=3600,"day";q=9;w=86400` {
		t.Errorf("the header says %v", header)
	}
	_, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}, grpc.Header(&header))
	if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(header.Get("ratelimit")[0], `"hour";r=0;`) {
		t.Errorf("%v; the header says %v", err, header)
	}
}

func TestGivesBackWhatAStreamDidNotUse(t *testing.T) {
	calls, _ := start(t, func(options *tidegate.Options) { options.DenialCache = 0 })
	watch := func() error {
		stream, err := calls.Watch(as("a"), &healthpb.HealthCheckRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	if err := watch(); err != nil {
		t.Fatal(err)
	}
	// Two units are left, as soon as they are back.
	for began := time.Now(); ; {
		_, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{})
		if err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
	if err := watch(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("3 units of 1: %v", err)
	}
}

func TestACallerThatGoesAwayInTheMiddleSettlesToo(t *testing.T) {
	calls, _ := start(t, func(options *tidegate.Options) { options.DenialCache = 0 })
	ctx, cancel := context.WithCancel(as("a"))
	stream, err := calls.Watch(ctx, &healthpb.HealthCheckRequest{Service: "endless"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	for began := time.Now(); ; {
		if _, err = calls.Check(as("a"), &healthpb.HealthCheckRequest{}); err == nil {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

func TestALeakyBucketHoldsCallsBack(t *testing.T) {
	calls, _ := startWith(t, testserver.Leaky, func(*tidegate.Options) {})
	began := time.Now()
	for range 4 {
		if _, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	// Ten a second leave the bucket: the fourth waits for three before it.
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("four calls took %v", took)
	}
}

func TestAnswersByItsModeWithoutTheService(t *testing.T) {
	calls, service := start(t, func(options *tidegate.Options) { options.OnFailure = tidegate.FailClosed })
	service.Kill()
	if _, err := calls.Check(as("a"), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}
