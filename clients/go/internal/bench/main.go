// Command bench compares the client with a bare http.Client that asks the same and reads `allowed`: calls per second
// and CPU per call of this process. They take turns, so that a ratio compares like with like.
//
// With `late` and the server's process it stops the server in the middle of its calls and says how late calls end from
// then on, and then those of other servers that give no answer. Both print rows of a table; see regression/clients/run.sh.
//
//	go run ./internal/bench http://127.0.0.1:4000 speed
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
)

const (
	atOnce = 16
	turns  = 5
	turn   = time.Second
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
func measure(callers int, call func(caller int) error) figures {
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
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
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

func speed(url string) {
	plain, hand := ours(url, func(*tidegate.Options) {}), bare(url)
	together := ours(url, func(options *tidegate.Options) { options.Batch = true })
	for _, row := range []struct {
		name         string
		atOnce       int
		mine, theirs func(int) error
	}{
		{"Go, beside net/http", 1, plain, hand},
		{"Go, beside net/http", atOnce, plain, hand},
		{"Go, batching, beside net/http", atOnce, together, hand},
		{"Go, batching, beside the same without", atOnce, together, plain},
	} {
		var mine, theirs []figures
		for range turns {
			mine = append(mine, measure(row.atOnce, row.mine))
			theirs = append(theirs, measure(row.atOnce, row.theirs))
		}
		perSecond := func(one figures) float64 { return one.perSecond }
		micros := func(one figures) float64 { return one.microsOfCPU }
		fmt.Printf("| %s | %d | %.0f | %.2f | %.0f | %.2f |\n", row.name, row.atOnce,
			median(mine, perSecond), median(mine, perSecond)/median(theirs, perSecond),
			median(mine, micros), median(mine, micros)/median(theirs, micros))
	}
}

func newClient(url string) *tidegate.Client {
	client, err := tidegate.New(func(options *tidegate.Options) { options.URL, options.BreakerFailures = url, 1_000_000 })
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// late stops the server in the middle of the calls; faulty are `NAME=URL` of servers that give no answer.
func late(url string, server int, faulty []string) {
	client := newClient(url)
	timed(asking(client), atOnce, 100)
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		log.Fatal(err)
	}
	for _, callers := range []int{1, atOnce} {
		show("frozen", client, callers, 200)
	}
	for _, fault := range faulty {
		name, url, _ := strings.Cut(fault, "=")
		show(name, newClient(url), atOnce, 50)
	}
}

func asking(client *tidegate.Client) func() {
	return func() { _, _ = client.Allow(context.Background(), tidegate.Attributes{"client_id": "late"}) }
}

// show prints how late calls end that are given no answer. As many others only sleep at the same time.
func show(name string, client *tidegate.Client, callers, calls int) {
	slept := make(chan []float64)
	go func() { slept <- timed(func() { time.Sleep(50 * time.Millisecond) }, callers, calls) }()
	took, others := timed(asking(client), callers, calls), <-slept
	p99, machine := took[len(took)*99/100], others[len(others)*99/100]
	fmt.Printf("| Go, %s | %d | %.1f | %.1f | %.1f | %.1f | %.2f |\n",
		name, callers, took[len(took)/2], p99, took[len(took)-1], machine, p99/machine)
}

// timed lets each caller act so many times and returns how many milliseconds each took, sorted.
func timed(action func(), callers, times int) []float64 {
	var mutex sync.Mutex
	var took []float64
	var group sync.WaitGroup
	for range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			for range times {
				began := time.Now()
				action()
				passed := time.Since(began).Seconds() * 1000
				mutex.Lock()
				took = append(took, passed)
				mutex.Unlock()
			}
		}()
	}
	group.Wait()
	slices.Sort(took)
	return took
}

func main() {
	const usage = "usage: bench URL speed | bench URL late SERVER'S-PID [NAME=URL ...]"
	switch {
	case len(os.Args) == 3 && os.Args[2] == "speed":
		speed(os.Args[1])
	case len(os.Args) >= 4 && os.Args[2] == "late":
		server, err := strconv.Atoi(os.Args[3])
		if err != nil {
			log.Fatal(usage)
		}
		late(os.Args[1], server, os.Args[4:])
	default:
		log.Fatal(usage)
	}
}
