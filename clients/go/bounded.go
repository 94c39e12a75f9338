package tidegate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// maxValueBytes is how long an attribute's value may be.
const maxValueBytes = 512

// Bounded makes a value that the server accepts of any text that a peer sent. One over 512 bytes becomes its
// first 447, cut within no character and no escape of a byte (`%2F`), a tilde, and the SHA-256 in hex of the whole: patterns that end in `*` still
// match, and no two values are confused. So does one that is not UTF-8, with each wrong byte replaced.
func Bounded(value string) string {
	valid := utf8.ValidString(value)
	if valid && len(value) <= maxValueBytes {
		return value
	}
	digest := sha256.Sum256([]byte(value))
	end := "~" + hex.EncodeToString(digest[:])
	start := value[:min(len(value), maxValueBytes)]
	if !valid {
		start = strings.ToValidUTF8(start, "\uFFFD")
	}
	cut := min(len(start), maxValueBytes-len(end))
	for cut < len(start) && cut > 0 && !utf8.RuneStart(start[cut]) {
		cut--
	}
	if escape := strings.LastIndexByte(start[:cut], '%'); escape >= 0 && escape >= cut-2 {
		cut = escape
	}
	return start[:cut] + end
}
