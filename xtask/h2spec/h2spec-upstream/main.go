// Command h2spec-upstream runs h2spec's cases for clients, which h2spec's own command does not offer, against a gateway: a
// server for each case, on ports from the one that is given, each of which misbehaves in its own way once it has a request.
//
//	h2spec-upstream GATEWAY FROM-PORT
//
// The gateway at GATEWAY (host:port) sends what is asked for by the path /PORT to the server at that port, in HTTP/2. A line
// is printed for each case that fails, and a summary. h2spec's own loop gives a case 3 seconds; this one waits for its end.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec/client"
	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/spec"
)

// How long a case may take, and the gateway's reply.
const patience = time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: h2spec-upstream GATEWAY FROM-PORT")
	}
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	settings := &config.Config{
		Host:         "127.0.0.1",
		Path:         "/",
		Timeout:      5 * time.Second,
		MaxHeaderLen: 4000,
		FromPort:     port,
		// Not a browser: nothing is said while it runs.
		Exec: "the gateway",
	}
	cases := client.Spec()
	each(cases, func(one *spec.ClientTestCase) {
		// Whoever serves a connection says here that it is done; a gateway may open another one.
		one.Done = make(chan bool, 16)
	})
	if _, err := spec.Listen(settings, cases); err != nil {
		return err
	}
	each(cases, func(one *spec.ClientTestCase) {
		go ask(fmt.Sprintf("http://%s/%d", os.Args[1], one.Port))
		select {
		case <-one.Done:
			if one.Result.Failed {
				fmt.Printf("failed: %s: %s\n", one.Parent.Title(), one.Desc)
			}
		case <-time.After(patience):
			err = fmt.Errorf("%s: %s: its server got no request, or did not end", one.Parent.Title(), one.Desc)
		}
	})
	total := cases.PassedCount + cases.FailedCount + cases.SkippedCount
	fmt.Printf("%d tests, %d passed, %d skipped, %d failed\n", total, cases.PassedCount, cases.SkippedCount, cases.FailedCount)
	return err
}

// ask is not interested in the answer: the server judges what it is sent.
func ask(url string) {
	reply, err := (&http.Client{Timeout: patience}).Get(url)
	if err == nil {
		reply.Body.Close()
	}
}

func each(group *spec.ClientTestGroup, do func(*spec.ClientTestCase)) {
	for _, one := range group.Tests {
		do(one)
	}
	for _, inner := range group.Groups {
		each(inner, do)
	}
}
