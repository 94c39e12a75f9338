package tidegategrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/tidegategrpc"
)

func ExampleNew() {
	defer testserver.Example()()
	client, err := tidegate.New(func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	if err != nil {
		panic(err)
	}
	defer client.Close()
	limits := tidegategrpc.New(client, func(options *tidegategrpc.Options) {
		options.Key = func(ctx context.Context) string {
			known, _ := metadata.FromIncomingContext(ctx)
			return fmt.Sprint(known.Get("api-key"))
		}
	})
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	defer server.Stop()
	fmt.Println(len(server.GetServiceInfo()))
	// Output: 0
}
