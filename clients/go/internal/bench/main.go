// Command bench compares the client with a bare http.Client that asks the same and reads `allowed`: calls per second
// and CPU per call of this process. They take turns, so that a ratio compares like with like.
//
//	go run ./internal/bench http://127.0.0.1:4000
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
)

const (
	callers = 16
	turns   = 5
	turn    = time.Second
)

// figures are one turn's.
type figures struct{ perSecond, microsOfCPU float64 }

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure calls as fast as it is answered, for a turn.
func measure(call func(caller int) error) figures {
	var calls atomic.Int64
	var group sync.WaitGroup
	spent, began := cpu(), time.Now()
	for caller := range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Since(began) < turn {
				if err := call(caller); err != nil {
					log.Fatal(err)
				}
				calls.Add(1)
			}
		}()
	}
	group.Wait()
	count := float64(calls.Load())
	return figures{count / time.Since(began).Seconds(), float64((cpu() - spent).Microseconds()) / count}
}

func bare(url string) func(int) error {
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return func(caller int) error {
		body, err := json.Marshal(map[string]any{"attributes": map[string]string{"client_id": fmt.Sprint("bare", caller)}})
		if err != nil {
			return err
		}
		response, err := client.Post(url+"/v1/decisions", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		var reply struct{ Allowed *bool }
		if err := json.Unmarshal(text, &reply); err != nil || reply.Allowed == nil {
			return fmt.Errorf("%d: %s", response.StatusCode, text)
		}
		return nil
	}
}

func ours(url string, change func(*tidegate.Options)) func(int) error {
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.DenialCache, options.Deadline = url, 0, 10*time.Second
	}, change)
	if err != nil {
		log.Fatal(err)
	}
	return func(caller int) error {
		decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": fmt.Sprint("ours", caller)})
		if err == nil && decision.Source != tidegate.FromServer {
			err = fmt.Errorf("an answer without the server: %s", decision.Failure)
		}
		return err
	}
}

func median(turns []figures, of func(figures) float64) float64 {
	values := []float64{}
	for _, one := range turns {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: bench URL")
	}
	names := []string{"bare", "client", "batching"}
	calls := map[string]func(int) error{
		"bare":     bare(os.Args[1]),
		"client":   ours(os.Args[1], func(*tidegate.Options) {}),
		"batching": ours(os.Args[1], func(options *tidegate.Options) { options.Batch = true }),
	}
	measured := map[string][]figures{}
	for range turns {
		for _, name := range names {
			measured[name] = append(measured[name], measure(calls[name]))
		}
	}
	perSecond := func(one figures) float64 { return one.perSecond }
	micros := func(one figures) float64 { return one.microsOfCPU }
	for _, name := range names {
		fmt.Printf("| Go, %s | %.0f | %.1f | %+.0f %% | %+.0f %% |\n", name,
			median(measured[name], perSecond), median(measured[name], micros),
			100*(median(measured[name], perSecond)/median(measured["bare"], perSecond)-1),
			100*(median(measured[name], micros)/median(measured["bare"], micros)-1))
	}
}
