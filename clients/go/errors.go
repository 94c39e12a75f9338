package tidegate

import (
	"context"
	"errors"
	"fmt"
)

// InvalidRequestError says that the request itself is wrong, which is its author's mistake: asking again
// changes nothing.
type InvalidRequestError struct {
	// Status is 400, 413 or 422.
	Status int
	// Problem is the server's document.
	Problem Problem
}

func (invalid *InvalidRequestError) Error() string {
	text := fmt.Sprintf("tidegate: the request is wrong (%d): %s", invalid.Status, invalid.Problem.Detail)
	for _, mistake := range invalid.Problem.Errors {
		text += fmt.Sprintf("; %s %s", mistake.Pointer, mistake.Detail)
	}
	return text
}

// UnavailableError says that the server gave no answer to a call that has no other: [Client.Explain].
type UnavailableError struct {
	// Failure says why.
	Failure Failure
	// Cause says more.
	Cause error
}

func (unavailable *UnavailableError) Error() string {
	return fmt.Sprintf("tidegate: no answer (%s): %v", unavailable.Failure, unavailable.Cause)
}

// Unwrap returns the cause.
func (unavailable *UnavailableError) Unwrap() error { return unavailable.Cause }

// Causes that no package below names.
var (
	errDeadline = errors.New("no answer before the deadline")
	errPlaces   = errors.New("all connections were in use until the deadline")
	errBreaker  = errors.New("the server failed before and is not asked for now")
	errClosed   = errors.New("the client is closed")
)

// failed is why a call has no answer, and whether that speaks against the server.
func failed(failure Failure, cause error) *UnavailableError {
	return &UnavailableError{Failure: failure, Cause: cause}
}

// interrupted tells the deadline and the caller's end from what the network did.
func interrupted(ctx context.Context, err error) *UnavailableError {
	switch {
	case ctx.Err() == nil:
		return failed(FailedConnection, err)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return failed(FailedCancelled, err)
	default:
		return failed(FailedTimeout, context.Cause(ctx))
	}
}

// failureOf is the word for err; none for a request that is wrong.
func failureOf(err error) Failure {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Failure
	}
	return NoFailure
}

func isInvalid(err error) bool { return errors.As(err, new(*InvalidRequestError)) }
