// Package fields reads the fields RateLimit and RateLimit-Policy: lists of RFC 9651, whose items are texts with
// parameters. A list that is malformed anywhere is ignored as a whole, as that RFC demands.
package fields

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// maxFieldBytes bounds what is read of a field.
const maxFieldBytes = 16 << 10

// Item is one policy in a field: its name, and those of its parameters that are integers.
type Item struct {
	Name     string
	Integers map[string]int64
	// Others are the parameters of other types.
	Others map[string]bool
}

// parser reads a structured field from the left.
type parser struct{ rest string }

// Read reads the lines of a field; false if it is malformed.
func Read(lines []string) ([]Item, bool) {
	text := strings.Join(lines, ", ")
	if len(text) > maxFieldBytes {
		return nil, false
	}
	parser := parser{rest: strings.Trim(text, " ")}
	var items []Item
	for parser.rest != "" {
		one, is := parser.item()
		if !is {
			return nil, false
		}
		items = append(items, one)
		parser.rest = strings.TrimLeft(parser.rest, " \t")
		if parser.rest == "" {
			return items, true
		}
		if !parser.take(',') {
			return nil, false
		}
		parser.rest = strings.TrimLeft(parser.rest, " \t")
		if parser.rest == "" {
			return nil, false
		}
	}
	return items, true
}

func (parser *parser) take(character byte) bool {
	if parser.rest == "" || parser.rest[0] != character {
		return false
	}
	parser.rest = parser.rest[1:]
	return true
}

// span takes the characters that `is` accepts.
func (parser *parser) span(is func(byte) bool) string {
	end := 0
	for end < len(parser.rest) && is(parser.rest[end]) {
		end++
	}
	taken := parser.rest[:end]
	parser.rest = parser.rest[end:]
	return taken
}

func (parser *parser) item() (Item, bool) {
	name, is := parser.text()
	if !is {
		return Item{}, false
	}
	one := Item{Name: name, Integers: map[string]int64{}, Others: map[string]bool{}}
	for parser.take(';') {
		parser.rest = strings.TrimLeft(parser.rest, " ")
		key := parser.key()
		if key == "" {
			return Item{}, false
		}
		delete(one.Integers, key)
		delete(one.Others, key)
		if !parser.take('=') {
			one.Others[key] = true
			continue
		}
		number, isInteger, is := parser.bare()
		switch {
		case !is:
			return Item{}, false
		case isInteger:
			one.Integers[key] = number
		default:
			one.Others[key] = true
		}
	}
	return one, true
}

func isLower(character byte) bool { return character >= 'a' && character <= 'z' }
func isDigit(character byte) bool { return character >= '0' && character <= '9' }
func isAlpha(character byte) bool { return isLower(character | 0x20) }

func (parser *parser) key() string {
	if parser.rest == "" || !isLower(parser.rest[0]) && parser.rest[0] != '*' {
		return ""
	}
	return parser.span(func(character byte) bool {
		return isLower(character) || isDigit(character) || strings.IndexByte("_-.*", character) >= 0
	})
}

// bare reads a bare item of any type; integers alone have a value here.
func (parser *parser) bare() (number int64, isInteger, is bool) {
	if parser.rest == "" {
		return 0, false, false
	}
	switch first := parser.rest[0]; {
	case first == '-' || isDigit(first):
		return parser.number()
	case first == '"':
		_, is = parser.text()
		return 0, false, is
	case first == '*' || isAlpha(first):
		parser.span(func(character byte) bool {
			return isAlpha(character) || isDigit(character) || strings.IndexByte("!#$%&'*+-.^_`|~:/", character) >= 0
		})
		return 0, false, true
	case first == ':':
		end := strings.IndexByte(parser.rest[1:], ':')
		if end < 0 {
			return 0, false, false
		}
		_, err := base64.StdEncoding.DecodeString(parser.rest[1 : end+1])
		parser.rest = parser.rest[end+2:]
		return 0, false, err == nil
	case first == '?':
		is = strings.HasPrefix(parser.rest, "?0") || strings.HasPrefix(parser.rest, "?1")
		parser.rest = parser.rest[min(2, len(parser.rest)):]
		return 0, false, is
	case first == '@':
		parser.take('@')
		_, isInteger, is = parser.number()
		return 0, false, is && isInteger
	case strings.HasPrefix(parser.rest, `%"`):
		return 0, false, parser.display()
	}
	return 0, false, false
}

func (parser *parser) number() (value int64, isInteger, is bool) {
	negative := parser.take('-')
	whole := parser.span(isDigit)
	if parser.take('.') {
		part := parser.span(isDigit)
		return 0, false, whole != "" && len(whole) <= 12 && part != "" && len(part) <= 3
	}
	if whole == "" || len(whole) > 15 {
		return 0, false, false
	}
	value, err := strconv.ParseInt(whole, 10, 64)
	if negative {
		value = -value
	}
	return value, true, err == nil
}

func (parser *parser) text() (string, bool) {
	if !parser.take('"') {
		return "", false
	}
	var read strings.Builder
	for parser.rest != "" {
		character := parser.rest[0]
		parser.rest = parser.rest[1:]
		switch {
		case character == '"':
			return read.String(), true
		case character == '\\':
			if parser.rest == "" || parser.rest[0] != '"' && parser.rest[0] != '\\' {
				return "", false
			}
			read.WriteByte(parser.rest[0])
			parser.rest = parser.rest[1:]
		case character < 0x20 || character > 0x7e:
			return "", false
		default:
			read.WriteByte(character)
		}
	}
	return "", false
}

// display passes over a display string.
func (parser *parser) display() bool {
	parser.rest = parser.rest[2:]
	for parser.rest != "" {
		character := parser.rest[0]
		parser.rest = parser.rest[1:]
		switch {
		case character == '"':
			return true
		case character < 0x20 || character > 0x7e:
			return false
		case character == '%':
			if len(parser.rest) < 2 {
				return false
			}
			if _, err := strconv.ParseUint(strings.ToLower(parser.rest[:2]), 16, 8); err != nil {
				return false
			}
			parser.rest = parser.rest[2:]
		}
	}
	return false
}

// Quoted writes a policy's name as a text of RFC 9651.
func Quoted(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}
