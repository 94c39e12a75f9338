package rate_test

import (
	"fmt"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/rate"
)

func ExampleNewLimiter() {
	defer testserver.Example()()
	client, err := tidegate.New(func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	if err != nil {
		panic(err)
	}
	defer client.Close()
	limiter := rate.NewLimiter(rate.Limit(10), 20, client, tidegate.Attributes{"client_id": "mailer", "resource": "three"})
	// The service has a policy for these attributes, of 3 an hour: it decides.
	fmt.Println(limiter.Burst(), limiter.AllowN(time.Now(), 3), limiter.Allow())
	// Output: 3 true false
}
