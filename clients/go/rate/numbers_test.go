package rate

import (
	"math"
	"testing"
	"time"
)

func TestNumbersAreWholeUnitsInWholeSeconds(t *testing.T) {
	for _, test := range []struct {
		rate           float64
		units, seconds int64
	}{
		{10, 10, 1}, {1.5, 3, 2}, {0.1, 1, 10}, {float64(Every(3 * time.Second)), 1, 3}, {float64(Every(time.Hour)), 1, 3_600},
		{10_000_000, 10_000_000, 1}, {1e-9, 1, longestSeconds},
	} {
		if units, seconds := fraction(test.rate); units != test.units || seconds != test.seconds {
			t.Errorf("%v a second is %d in %d s", test.rate, units, seconds)
		}
	}
	for _, rate := range []float64{math.Pi, 1 / math.Pi, math.Pi / 1e6, math.Pi * 1e6} {
		units, seconds := fraction(rate)
		if math.Abs(float64(units)/float64(seconds)-rate) > rate/1e6 || seconds < 1 || seconds > longestSeconds || units > mostUnits {
			t.Errorf("%v a second is %d in %d s", rate, units, seconds)
		}
	}
}
