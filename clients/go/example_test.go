package tidegate_test

import (
	"context"
	"fmt"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// patient is a deadline that a busy machine keeps, too.
func patient(options *tidegate.Options) { options.Deadline = 10 * time.Second }

func ExampleClient_Allow() {
	defer testserver.Example()()
	client, err := tidegate.New(patient)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for range 4 {
		decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "user123", "resource": "three"})
		if err != nil {
			panic(err)
		}
		fmt.Println(decision.Allowed, decision.Remaining, decision.RetryAfterSeconds)
	}
	// Output:
	// true 2 0
	// true 1 0
	// true 0 0
	// false 0 1200
}

func ExampleClient_Batch() {
	defer testserver.Example()()
	client, err := tidegate.New(patient)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	decisions, err := client.Batch(context.Background(), []tidegate.Request{
		tidegate.Ask(tidegate.Attributes{"client_id": "user123", "resource": "three"}, tidegate.Cost(3)),
		tidegate.Ask(tidegate.Attributes{"client_id": "user123", "resource": "three"}),
		tidegate.Ask(tidegate.Attributes{"client_id": "user456", "resource": "three"}),
	})
	if err != nil {
		panic(err)
	}
	for _, decision := range decisions {
		fmt.Println(decision.Allowed, decision.Remaining)
	}
	// Output:
	// true 0
	// false 0
	// true 2
}

func ExampleClient_Acquire() {
	defer testserver.Example()()
	client, err := tidegate.New(patient)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	report := func() {
		permit, err := client.Acquire(context.Background(), tidegate.Attributes{"client_id": "user123", "resource": "slots"})
		if err != nil {
			panic(err)
		}
		defer permit.Release(context.Background())
		fmt.Println(permit.Allowed, permit.Held(), permit.Remaining)
	}
	report()
	report()
	// Output:
	// true true 1
	// true true 1
}

func ExampleClient_Reserve() {
	defer testserver.Example()()
	client, err := tidegate.New(patient)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, who := context.Background(), tidegate.Attributes{"client_id": "user123", "resource": "three"}
	charge, err := client.Reserve(ctx, who, 3) // The most that the reply can use.
	if err != nil {
		panic(err)
	}
	charge.Settle(ctx, 1)
	decision, err := client.Allow(ctx, who)
	if err != nil {
		panic(err)
	}
	fmt.Println(charge.Remaining, decision.Remaining)
	// Output: 0 1
}
