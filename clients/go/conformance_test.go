package tidegate_test

// The cases of clients/conformance.json, which all clients run against the real binary.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// untilBound is how long a step that says `until` may take.
const untilBound = 20 * time.Second

type object = testserver.Object

func milliseconds(value any) time.Duration { return time.Duration(value.(float64)) * time.Millisecond }

// configure puts options as the document names them into the client's.
func configure(t *testing.T, given object) func(*tidegate.Options) {
	return func(options *tidegate.Options) {
		for name, value := range given {
			switch name {
			case "url":
				options.URL = value.(string)
			case "token":
				options.Token = value.(string)
			case "deadline_ms":
				options.Deadline = milliseconds(value)
			case "on_failure":
				options.OnFailure = tidegate.Mode(value.(string))
			case "denial_cache":
				options.DenialCache = int(value.(float64))
			case "denial_cache_ms":
				options.DenialCacheTime = milliseconds(value)
			case "batch":
				options.Batch = value.(bool)
			case "max_connections":
				options.MaxConnections = int(value.(float64))
			case "breaker_failures":
				options.BreakerFailures = int(value.(float64))
			case "breaker_open_ms":
				options.BreakerOpen = milliseconds(value)
			case "fallback":
				configureFallback(t, &options.Fallback, value.(object))
			default:
				t.Errorf("the option %q is not known", name)
			}
		}
	}
}

func configureFallback(t *testing.T, fallback *tidegate.Fallback, given object) {
	for name, value := range given {
		switch name {
		case "limit":
			fallback.Limit = int64(value.(float64))
		case "window_seconds":
			fallback.Window = time.Duration(value.(float64)) * time.Second
		case "share":
			fallback.Share = value.(float64)
		case "keys":
			fallback.Keys = int(value.(float64))
		default:
			t.Errorf("the fallback's %q is not known", name)
		}
	}
}

// run is one case on its way.
type run struct {
	t       *testing.T
	client  *tidegate.Client
	server  *testserver.Server
	permits map[string]*tidegate.Permit

	mutex  sync.Mutex
	events []any
}

// hear keeps an event as the document names its fields.
func (run *run) hear(_ context.Context, event tidegate.Event) {
	told := object{"operation": event.Operation, "outcome": event.Outcome, "count": float64(event.Count)}
	for name, value := range map[string]string{
		"source": string(event.Source), "failure": string(event.Failure), "policy": event.Policy,
	} {
		if value != "" {
			told[name] = value
		}
	}
	run.mutex.Lock()
	defer run.mutex.Unlock()
	run.events = append(run.events, told)
}

func attributes(step object) tidegate.Attributes {
	known := tidegate.Attributes{}
	given, _ := step["attributes"].(object)
	for name, value := range given {
		known[name] = testserver.Text(value)
	}
	return known
}

func options(step object) []tidegate.Option {
	var chosen []tidegate.Option
	if cost, is := step["cost"].(float64); is {
		chosen = append(chosen, tidegate.Cost(int64(cost)))
	}
	if peek, _ := step["peek"].(bool); peek {
		chosen = append(chosen, tidegate.Peek())
	}
	if given, is := step["limits"].(object); is {
		limits := tidegate.Limits{Limit: int64(given["limit"].(float64)), WindowSeconds: int64(given["window_seconds"].(float64))}
		limits.Algorithm, _ = given["algorithm"].(string)
		burst, _ := given["burst"].(float64)
		limits.Burst = int64(burst)
		chosen = append(chosen, tidegate.WithLimits(limits))
	}
	return chosen
}

// call makes the call of a step and returns its result as JSON has it.
func (run *run) call(step object) any {
	ctx := context.Background()
	if deadline, is := step["deadline_ms"]; is {
		ctx = tidegate.WithDeadline(ctx, milliseconds(deadline))
	}
	switch step["call"] {
	case "allow":
		decision, err := run.client.Allow(ctx, attributes(step), options(step)...)
		return outcome(shown(decision), err)
	case "batch":
		requests := []tidegate.Request{}
		for _, item := range step["requests"].([]any) {
			requests = append(requests, tidegate.Ask(attributes(item.(object)), options(item.(object))...))
		}
		decisions, err := run.client.Batch(ctx, requests)
		list := []any{}
		for _, decision := range decisions {
			list = append(list, shown(decision))
		}
		return outcome(list, err)
	case "refund":
		refunded, err := run.client.Refund(ctx, attributes(step), options(step)...)
		result := object{"policies": anys(refunded.Policies)}
		if refunded.Failure != "" {
			result["failure"] = string(refunded.Failure)
		}
		return outcome(result, err)
	case "acquire":
		permit, err := run.client.Acquire(ctx, attributes(step), options(step)...)
		if err != nil {
			return outcome(nil, err)
		}
		if name, is := step["as"].(string); is {
			run.permits[name] = permit
		}
		result := shown(permit.Decision)
		result["held"] = permit.Held()
		return result
	case "renew":
		result := object{}
		if lease, held := run.permits[step["permit"].(string)].Renew(ctx); held {
			result["lease_ms"] = float64(lease.Milliseconds())
		}
		return result
	case "release":
		run.permits[step["permit"].(string)].Release(ctx)
		return object{}
	case "explain":
		explanation, err := run.client.Explain(ctx, attributes(step), options(step)...)
		return outcome(plain(explanation), err)
	}
	run.t.Fatalf("the call %v is not known", step["call"])
	return nil
}

func anys(texts []string) []any {
	list := []any{}
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

func plain(value any) object {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // Only types that can be written are given here.
	}
	var made object
	if err := json.Unmarshal(text, &made); err != nil {
		panic(err)
	}
	return made
}

// shown is a decision as the document names its fields: what Go writes as 0 where it is unknown is left out.
func shown(decision tidegate.Decision) object {
	result := plain(decision)
	if decision.Policy != "" || decision.Degraded == "local" {
		result["limit"], result["remaining"] = float64(decision.Limit), float64(decision.Remaining)
	}
	result["source"] = string(decision.Source)
	for name, value := range map[string]string{
		"failure": string(decision.Failure), "rate_limit": decision.RateLimit, "rate_limit_policy": decision.RateLimitPolicy,
	} {
		if value != "" {
			result[name] = value
		}
	}
	return result
}

// outcome is a call's result, or its error as the document names it.
func outcome(result any, err error) any {
	var invalid *tidegate.InvalidRequestError
	var unavailable *tidegate.UnavailableError
	switch {
	case errors.As(err, &invalid):
		return object{"error": "invalid_request", "status": float64(invalid.Status)}
	case errors.As(err, &unavailable):
		return object{"error": "unavailable"}
	case err != nil:
		return object{"error": err.Error()}
	}
	return result
}

func (run *run) step(index int, step object) {
	run.t.Helper()
	place := fmt.Sprintf("step %d", index)
	if do, is := step["do"].(string); is {
		run.do(do)
		return
	}
	switch together := step["concurrently"].(type) {
	case []any:
		results := make([]any, len(together))
		var first sync.Once
		run.together(len(together), func(at int) {
			results[at] = run.call(together[at].(object))
			if then, is := step["then"].(string); is {
				first.Do(func() { run.do(then) })
			}
		})
		for at, result := range results {
			run.expect(together[at].(object)["expect"], result, fmt.Sprintf("%s, call %d", place, at))
		}
		return
	case float64:
		run.counted(step, int(together), place)
		return
	}
	times := 1
	if given, is := step["times"].(float64); is {
		times = int(given)
	}
	for range times {
		began := time.Now()
		result := run.call(step)
		for step["until"] == true && testserver.Differs(step["expect"], result, true, "") != "" && time.Since(began) < untilBound {
			result = run.call(step)
		}
		if expected, is := step["expect"]; is {
			run.expect(expected, result, place)
		}
	}
}

func (run *run) do(what string) {
	map[string]func(){
		"freeze": run.server.Freeze, "thaw": run.server.Thaw, "kill": run.server.Kill, "start": run.server.Restart,
		"heal": run.server.Heal,
	}[what]()
}

func (run *run) counted(step object, times int, place string) {
	results := make([]any, times)
	run.together(times, func(at int) { results[at] = run.call(step) })
	counts := object{"allowed": 0.0, "denied": 0.0, "server": 0.0, "degraded": 0.0}
	add := func(name string, is bool) {
		if is {
			counts[name] = counts[name].(float64) + 1
		}
	}
	for _, result := range results {
		decision := result.(object)
		add("allowed", decision["allowed"] == true)
		add("denied", decision["allowed"] == false)
		add("server", decision["source"] == "server")
		add("degraded", decision["degraded"] != nil)
	}
	run.expect(step["count"], counts, place)
}

func (run *run) together(times int, call func(int)) {
	var group sync.WaitGroup
	for at := range times {
		group.Add(1)
		go func() {
			defer group.Done()
			call(at)
		}()
	}
	group.Wait()
}

func (run *run) expect(expected, result any, place string) {
	run.t.Helper()
	if said := testserver.Differs(expected, result, true, place); said != "" {
		run.t.Errorf("%s; expected %v, in %v", said, expected, result)
	}
}

func TestConformance(t *testing.T) {
	document := testserver.Document(t)
	config := filepath.Join(testserver.Clients(), "conformance.toml")
	shared := testserver.Start(t, config)
	for _, item := range document["cases"].([]any) {
		one := item.(object)
		t.Run(one["name"].(string), func(t *testing.T) {
			run := &run{t: t, permits: map[string]*tidegate.Permit{}}
			url := ""
			switch server := one["server"].(type) {
			case object:
				run.server = testserver.Fault(t, server["fault"].(string))
			case string:
				switch server {
				case "shared":
					run.server = shared
				case "own":
					run.server = testserver.Start(t, config)
				case "nothing":
					url = testserver.Nobody(t)
				}
			}
			if run.server != nil {
				url = run.server.URL
			}
			chosen, _ := one["options"].(object)
			client, err := tidegate.New(configure(t, document["options"].(object)), configure(t, chosen),
				func(options *tidegate.Options) { options.URL, options.OnEvent = url, run.hear })
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			run.client = client
			for index, step := range one["steps"].([]any) {
				run.events = []any{}
				run.step(index, step.(object))
				if events, is := step.(object)["events"]; is {
					run.expect(events, run.events, fmt.Sprintf("events of step %d", index))
				}
			}
		})
	}
}

func TestInvalidOptionsMakeNoClient(t *testing.T) {
	for _, item := range testserver.Document(t)["invalid_options"].([]any) {
		if client, err := tidegate.New(configure(t, item.(object))); err == nil {
			client.Close()
			t.Errorf("%v makes a client", item)
		}
	}
}
