package tidegate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// newTransport keeps as many connections as there may be calls. It takes no proxy from the environment: the
// service is near, and its deadline short.
func newTransport(connections int, config *tls.Config) *http.Transport {
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		MaxConnsPerHost:        connections,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        30 * time.Second,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// call asks the server once, if the breaker admits it, and tells the breaker how it ended. ctx carries the
// deadline. The error is an *InvalidRequestError or an *UnavailableError.
func (client *Client) call(ctx context.Context, method, path string, body any, reply json.Unmarshaler) error {
	if client.closed.Load() {
		return failed(FailedCancelled, errClosed)
	}
	if !client.breaker.admits(time.Now()) {
		return failed(FailedBreaker, errBreaker)
	}
	how := abandoned // Also when something panics on the way.
	defer func() { client.breaker.ended(how, time.Now()) }()
	status, err := client.exchange(ctx, method, path, body, reply)
	how = judged(status, err)
	return err
}

// judged says what an exchange tells of the server. A 5xx and a 200 that is no decision are failures; any
// other status is a reply; a caller who gave up, and connections that were all in use, say nothing.
func judged(status int, err error) outcome {
	var unavailable *UnavailableError
	switch {
	case status >= 500:
		return unanswered
	case !errors.As(err, &unavailable) || unavailable.Failure == FailedStatus:
		return replied
	case unavailable.Failure == FailedCancelled || unavailable.Cause == errPlaces || unavailable.Cause == context.DeadlineExceeded:
		return abandoned
	}
	return unanswered
}

// exchange sends one request and reads its reply. The status is 0 if none came.
func (client *Client) exchange(ctx context.Context, method, path string, body any, reply json.Unmarshaler) (int, error) {
	if err := client.enter(ctx); err != nil {
		return 0, err
	}
	defer func() { <-client.places }()
	request, err := client.request(ctx, method, path, body)
	if err != nil {
		return 0, failed(FailedCancelled, err)
	}
	response, err := client.transport.RoundTrip(request)
	if err != nil {
		return 0, interrupted(ctx, err)
	}
	text, err := readReply(ctx, response.Body)
	if err != nil {
		// Ends the connection, for which the caller need not wait.
		go func() { _ = response.Body.Close() }()
		return response.StatusCode, err
	}
	_ = response.Body.Close() // It has been read to its end.
	return response.StatusCode, understand(response, text, reply)
}

// pieceBytes is how much of a reply the caller reads itself. A decision has a hundredth of that.
const pieceBytes = 64 << 10

// pieces are used again: what a server without end sends would keep the collector, and so all callers, at work.
var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// readReply reads a reply to its end. Of a long one the caller does not read the rest, but waits for it: while a server
// sends without end, and keeps every processor at work, a goroutine that reads hears late of its deadline.
func readReply(ctx context.Context, body io.Reader) ([]byte, error) {
	text := make([]byte, 0, 1024)
	for len(text) < pieceBytes {
		if len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
		read, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+read]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, interrupted(ctx, err)
		}
	}
	type rest struct {
		text []byte
		err  error
	}
	whole := make(chan rest, 1)
	go func() {
		all, err := readRest(body, text)
		whole <- rest{all, err}
	}()
	select {
	case rest := <-whole:
		if rest.err != nil {
			return nil, interrupted(ctx, rest.err)
		}
		if rest.text == nil {
			return nil, failed(FailedReply, fmt.Errorf("it has more than %d bytes", maxReplyBytes))
		}
		return rest.text, nil
	case <-ctx.Done(): // Ends the reading too.
		return nil, interrupted(ctx, ctx.Err())
	}
}

// readRest returns a start and what follows it, or nil if that is more than maxReplyBytes.
func readRest(body io.Reader, start []byte) ([]byte, error) {
	var taken []*[pieceBytes]byte
	defer func() {
		for _, piece := range taken {
			pieces.Put(piece)
		}
	}()
	parts := [][]byte{start}
	for size := len(start); size <= maxReplyBytes; {
		piece := pieces.Get().(*[pieceBytes]byte)
		taken = append(taken, piece)
		filled := 0
		var err error
		for err == nil && filled < pieceBytes {
			var read int
			read, err = body.Read(piece[filled:])
			filled += read
		}
		parts, size = append(parts, piece[:filled]), size+filled
		switch {
		case err == io.EOF && size <= maxReplyBytes:
			return bytes.Join(parts, nil), nil
		case err != nil && err != io.EOF:
			return nil, err
		}
	}
	return nil, nil
}

// enter waits for a place among the calls under way.
func (client *Client) enter(ctx context.Context) error {
	select {
	case client.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case client.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errDeadline) {
			client.full.Add(1)
			return failed(FailedTimeout, errPlaces)
		}
		return interrupted(ctx, ctx.Err())
	}
}

func (client *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	target, err := url.Parse(client.base + path)
	if err != nil {
		return nil, err
	}
	request := (&http.Request{
		Method: method, URL: target, Host: target.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"tidegate-go/" + Version}},
	}).WithContext(ctx)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		request.Header["Content-Type"] = []string{"application/json"}
		request.ContentLength = int64(len(text))
		request.Body = io.NopCloser(bytes.NewReader(text))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	}
	if client.options.Token != "" {
		request.Header["Authorization"] = []string{"Bearer " + client.options.Token}
	}
	client.propagate(ctx, request.Header)
	return request, nil
}

func (client *Client) propagate(ctx context.Context, header http.Header) {
	if client.options.Propagate == nil || ctx.Value(togetherKey{}) != nil {
		return
	}
	defer func() { _ = recover() }() // A hook is never the reason of an outage.
	client.options.Propagate(ctx, header)
}

// understand makes of a reply its value, or says why it is none. The value reads its own text: [json.Unmarshal] would
// go through it twice more before.
func understand(response *http.Response, text []byte, reply json.Unmarshaler) error {
	status := response.StatusCode
	switch {
	case status == http.StatusNoContent && reply == nil:
		return nil
	case status == http.StatusOK && reply != nil:
		if err := reply.UnmarshalJSON(text); err != nil {
			return failed(FailedReply, err)
		}
		if decision, is := reply.(*Decision); is {
			decision.RateLimit = response.Header.Get("RateLimit")
			decision.RateLimitPolicy = response.Header.Get("RateLimit-Policy")
		}
		return nil
	}
	var problem Problem
	if err := json.Unmarshal(text, &problem); err != nil || problem.Detail == "" {
		problem.Detail = http.StatusText(status)
	}
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return &InvalidRequestError{Status: status, Problem: problem}
	}
	return failed(FailedStatus, fmt.Errorf("status %d: %s", status, problem.Detail))
}

// decisionList is a batch's reply, which has as many items as were asked.
type decisionList struct {
	wanted int
	list   []Decision
}

// UnmarshalJSON reads the list and compares its length.
func (replies *decisionList) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &replies.list); err != nil {
		return err
	}
	if len(replies.list) != replies.wanted {
		return fmt.Errorf("%d requests and %d answers", replies.wanted, len(replies.list))
	}
	return nil
}
