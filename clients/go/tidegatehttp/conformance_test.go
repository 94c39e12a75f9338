package tidegatehttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

type object = testserver.Object

// untilBound is how long a step that says `until` may take.
const untilBound = 20 * time.Second

// application has the routes that clients/conformance.json describes.
func application() http.Handler {
	mux := http.NewServeMux()
	fine := func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "ok") }
	mux.HandleFunc("/", fine)
	mux.HandleFunc("/health", fine)
	mux.HandleFunc("/stream", func(writer http.ResponseWriter, request *http.Request) {
		for range 10 {
			_, _ = io.WriteString(writer, "piece\n")
			_ = http.NewResponseController(writer).Flush()
		}
		Settle(request.Context(), 1)
	})
	return mux
}

func limited(client *tidegate.Client, document object) http.Handler {
	return Middleware(client, func(options *Options) {
		options.Attributes = func(request *http.Request) tidegate.Attributes {
			attributes := tidegate.Attributes{"resource": document["attributes"].(object)["resource"].(string)}
			if resource := request.URL.Query().Get("resource"); resource != "" {
				attributes["resource"] = resource
			}
			if tenant := request.URL.Query().Get("tenant"); tenant != "" {
				attributes["client_id"] = tenant
			}
			return attributes
		}
		options.Key = func(request *http.Request) string { return request.Header.Get(document["key"].(string)) }
		options.Skip = func(request *http.Request) bool { return request.URL.Path == document["skip"] }
		options.Cost = func(request *http.Request) int64 {
			if cost, err := strconv.ParseInt(request.URL.Query().Get("cost"), 10, 64); err == nil {
				return cost
			}
			return 1
		}
	})(application())
}

// shown is a response as the document names its parts.
func shown(t *testing.T, response *http.Response) object {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	result := object{"status": float64(response.StatusCode), "body": string(body)}
	for name := range response.Header {
		value := response.Header.Get(name)
		result[strings.ToLower(name)] = value
		if number, err := strconv.ParseFloat(value, 64); err == nil && name == "Retry-After" {
			result[strings.ToLower(name)] = number
		}
	}
	var problem object
	if json.Unmarshal(body, &problem) == nil {
		result["problem"] = problem
	}
	return result
}

func TestMiddlewareConformance(t *testing.T) {
	document := testserver.Document(t)["middleware"].(object)
	server := testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Token, options.Deadline = server.URL, "conformance-token", 2*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	front := httptest.NewServer(limited(client, document))
	defer front.Close()
	for index, item := range document["steps"].([]any) {
		step := item.(object)
		switch step["do"] {
		case "freeze":
			server.Freeze()
			continue
		case "thaw":
			server.Thaw()
			continue
		}
		ask := func() object {
			request, err := http.NewRequest(http.MethodGet, front.URL+step["path"].(string), nil)
			if err != nil {
				t.Fatal(err)
			}
			if client, is := step["client"]; is {
				request.Header.Set("x-client", testserver.Text(client))
			}
			if fields, is := step["headers"].(object); is {
				for name, value := range fields {
					request.Header.Set(name, value.(string))
				}
			}
			response, err := front.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			return shown(t, response)
		}
		times, _ := step["times"].(float64)
		for range max(1, int(times)) {
			result := ask()
			for began := time.Now(); step["until"] == true && time.Since(began) < untilBound; result = ask() {
				if testserver.Differs(step["expect"], result, true, "") == "" {
					break
				}
			}
			if said := testserver.Differs(step["expect"], result, true, "response"); said != "" {
				t.Errorf("step %d: %s; expected %v", index, said, step["expect"])
			}
		}
	}
}

func TestThePathThatIsSentOfARequest(t *testing.T) {
	found := ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		found = defaults().Attributes(request)["path"]
	}))
	defer server.Close()
	for _, item := range testserver.Document(t)["paths"].([]any) {
		one := item.(object)
		request, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Opaque = one["target"].(string) // As it is, not as Go would write it.
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // There is none.
		if found != one["sent"] {
			t.Errorf("%v: of %v is sent %s", one["what"], one["target"], found)
		}
	}
}

func TestDenials(t *testing.T) {
	for _, item := range testserver.Document(t)["denials"].([]any) {
		one := item.(object)
		t.Run(one["what"].(string), func(t *testing.T) {
			text, err := json.Marshal(one["decision"])
			if err != nil {
				t.Fatal(err)
			}
			var decision tidegate.Decision
			if err := json.Unmarshal(text, &decision); err != nil {
				t.Fatal(err)
			}
			given := one["decision"].(object)
			decision.Source = tidegate.Source(given["source"].(string))
			decision.RateLimit, _ = given["rate_limit"].(string)
			decision.RateLimitPolicy, _ = given["rate_limit_policy"].(string)
			recorder := httptest.NewRecorder()
			if decision.Allowed {
				Describe(recorder.Header(), &decision)
			} else {
				Deny(recorder, &decision)
			}
			result := shown(t, recorder.Result())
			if seconds, is := result["retry-after"].(float64); is {
				result["retry-after"] = strconv.FormatFloat(seconds, 'f', -1, 64)
			}
			result["fields"] = object(result)
			for _, part := range []string{"status", "fields", "problem"} {
				if expected, is := one[part]; is {
					if said := testserver.Differs(expected, result[part], true, part); said != "" {
						t.Errorf("%s; in %v", said, result)
					}
				}
			}
		})
	}
}

func TestWaits(t *testing.T) {
	for _, item := range testserver.Document(t)["waits"].([]any) {
		one := item.(object)
		header := http.Header{}
		for name, value := range one["fields"].(object) {
			header.Set(name, value.(string))
		}
		wait, _ := told(int(one["status"].(float64)), header, time.Now())
		if longest, is := one["max_wait_s"].(float64); is {
			wait = min(wait, time.Duration(longest)*time.Second)
		}
		if wait.Seconds() != one["wait_s"].(float64) {
			t.Errorf("%v: %v waits %v", one["what"], one["fields"], wait)
		}
	}
	soon := time.Now().Add(10 * time.Second)
	header := http.Header{"Retry-After": {soon.UTC().Format(http.TimeFormat)}}
	if wait, _ := told(http.StatusTooManyRequests, header, soon.Truncate(time.Second).Add(-4*time.Second)); wait != 4*time.Second {
		t.Errorf("a date 4 s ahead waits %v", wait)
	}
}

// number is which request a faulty server says that it answered.
func number(t *testing.T, response *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, response.Header.Get("x-number")
}

func TestRepeatsWhatChangesNothingAfterTheWait(t *testing.T) {
	client := &http.Client{Transport: NewTransport()}
	server := testserver.Fault(t, "denied_then_ok")
	began := time.Now()
	response, err := client.Get(server.URL)
	status, number := number(t, response, err)
	if status != http.StatusOK || number != "2" || time.Since(began) < time.Second {
		t.Errorf("%d from request %s after %v", status, number, time.Since(began))
	}
}

func TestNeverRepeatsWhatIsUnsafe(t *testing.T) {
	client := &http.Client{Transport: NewTransport()}
	server := testserver.Fault(t, "denied_then_ok")
	response, err := client.PostForm(server.URL, url.Values{"pay": {"1"}})
	if status, number := number(t, response, err); status != http.StatusTooManyRequests || number != "1" {
		t.Errorf("%d from request %s", status, number)
	}
}

func TestWaitsBeforeTheNextRequestWhereNothingIsLeft(t *testing.T) {
	client := &http.Client{Transport: NewTransport()}
	server := testserver.Fault(t, "spent")
	began := time.Now()
	response, err := client.Get(server.URL)
	number(t, response, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := NewTransport()
	now := time.Now()
	transport.learn(originOf(request), time.Hour, false, now)
	if _, err := transport.RoundTrip(request); err == nil {
		t.Error("a request left an hour early")
	}
	response, err = client.Get(server.URL)
	if _, which := number(t, response, err); which != "2" || time.Since(began) < time.Second {
		t.Errorf("the second call is request %s after %v", which, time.Since(began))
	}
}

func TestReturnsADenialForLongerThanItWaits(t *testing.T) {
	client := &http.Client{Transport: NewTransport()}
	server := testserver.Fault(t, "denied_for_long")
	response, err := client.Get(server.URL)
	if status, number := number(t, response, err); status != http.StatusTooManyRequests || number != "1" {
		t.Errorf("%d from request %s", status, number)
	}
}

func seconds(value any) time.Duration { return time.Duration(value.(float64)) * time.Second }

// departures are when requests leave that come all at once, after some responses.
func departures(one object) []time.Duration {
	longest := time.Minute
	if given, is := one["max_wait_s"]; is {
		longest = seconds(given)
	}
	transport, now := NewTransport(func(options *TransportOptions) { options.MaxWait = longest }), time.Now()
	for _, item := range one["responses"].([]any) {
		response, header := item.(object), http.Header{}
		for name, value := range response["fields"].(object) {
			header.Set(name, value.(string))
		}
		wait, spread := told(int(response["status"].(float64)), header, now)
		transport.learn("a", min(wait, longest), spread, now)
	}
	var waits []time.Duration
	for range one["at_least_s"].([]any) {
		waits = append(waits, transport.departure("a", now))
	}
	return waits
}

func TestDepartures(t *testing.T) {
	for _, item := range testserver.Document(t)["departures"].([]any) {
		one := item.(object)
		least, most := one["at_least_s"].([]any), one["at_most_s"].([]any)
		firsts := map[time.Duration]bool{}
		for range 20 {
			waits := departures(one)
			firsts[waits[0]] = true
			for index, wait := range waits {
				if wait < seconds(least[index]) || wait > seconds(most[index]) {
					t.Errorf("%v: %v", one["what"], waits)
				}
			}
		}
		if spread := least[0] != most[0]; spread != (len(firsts) > 1) {
			t.Errorf("%v: %v", one["what"], firsts)
		}
	}
}

func TestOriginsAreBounded(t *testing.T) {
	transport := NewTransport(func(options *TransportOptions) { options.Origins = 2 })
	now := time.Now()
	for _, name := range []string{"a", "b", "c"} {
		transport.learn(name, time.Second, false, now)
	}
	if wait := transport.departure("a", now); wait != 0 || transport.order.Len() != 2 {
		t.Errorf("%d origins are kept, and the oldest waits %v", transport.order.Len(), wait)
	}
}

func TestKeepsWithinALimitOfTheRealServer(t *testing.T) {
	server := testserver.StartWith(t, testserver.Document(t)["paced"].(object)["config"].(string))
	client, began := &http.Client{Transport: NewTransport()}, time.Now()
	for range 30 {
		response, err := client.Get(server.URL + "/v1/check")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // There is none.
		if response.StatusCode != http.StatusNoContent {
			t.Errorf("status %d", response.StatusCode)
		}
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("thirty requests passed in %v", took)
	}
}
