package tidegate

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/iotest"
)

func TestRepliesAreReadWholeUpToTheirBound(t *testing.T) {
	whole := make([]byte, maxReplyBytes+1)
	for index := range whole {
		whole[index] = byte(index % 251)
	}
	for _, size := range []int{0, 1, 1024, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3*pieceBytes + 7, maxReplyBytes} {
		text, err := readReply(context.Background(), iotest.HalfReader(bytes.NewReader(whole[:size])))
		if err != nil || !bytes.Equal(text, whole[:size]) {
			t.Errorf("of %d bytes it read %d, %v", size, len(text), err)
		}
	}
	if text, err := readReply(context.Background(), bytes.NewReader(whole)); failureOf(err) != FailedReply || text != nil {
		t.Errorf("beyond the bound: %d bytes, %v", len(text), err)
	}
	for _, size := range []int{10, 2 * pieceBytes} {
		cut := iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(whole[:size])))
		if _, err := readReply(context.Background(), cut); failureOf(err) != FailedConnection || !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("cut after some of %d bytes: %v", size, err)
		}
	}
}
