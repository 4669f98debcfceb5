package nvml

import (
	"errors"
	"testing"
)

// L30: a device counter went backwards, or read 4294967295.
func TestImplausibleReadingsAreDiscarded(t *testing.T) {
	for name, test := range map[string]struct {
		previous, current Reading
		plausible         bool
	}{
		"first":               {Reading{}, Reading{UtilisationPercent: 100, EnergyMillijoules: 5}, true},
		"unchanged":           {Reading{EnergyMillijoules: 5}, Reading{EnergyMillijoules: 5}, true},
		"grown":               {Reading{EnergyMillijoules: 5}, Reading{EnergyMillijoules: 6}, true},
		"backwards":           {Reading{EnergyMillijoules: 6}, Reading{EnergyMillijoules: 5}, false},
		"no energy value":     {Reading{EnergyMillijoules: 6}, Reading{EnergyMillijoules: 4294967295}, false},
		"no energy, 64 bits":  {Reading{EnergyMillijoules: 6}, Reading{EnergyMillijoules: 1<<64 - 1}, false},
		"no utilisation":      {Reading{}, Reading{UtilisationPercent: 4294967295}, false},
		"utilisation too big": {Reading{}, Reading{UtilisationPercent: 101}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := Plausible(test.previous, test.current)
			if (err == nil) != test.plausible {
				t.Errorf("Plausible(%+v, %+v) = %v, want plausible %v", test.previous, test.current, err, test.plausible)
			}
			if err != nil && !errors.Is(err, ErrImplausible) {
				t.Errorf("%v does not wrap ErrImplausible", err)
			}
		})
	}
}
