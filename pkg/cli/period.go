package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a machine may have no zones of its own

	"github.com/spf13/cobra"
)

// period is [from, to).
type period struct{ from, to time.Time }

// periodFlags are how people say which period they mean.
type periodFlags struct{ from, to, month, zone string }

func (f *periodFlags) add(command *cobra.Command, withZone bool) {
	command.Flags().StringVar(&f.from, "from", "", "Start of the period, a day or an RFC 3339 time; the beginning of this month if empty.")
	command.Flags().StringVar(&f.to, "to", "", "End of the period, not part of it, likewise; now if empty.")
	command.Flags().StringVar(&f.month, "month", "", "The whole of a month instead, such as 2026-11.")
	f.zone = "UTC"
	if withZone {
		command.Flags().StringVar(&f.zone, "zone", "UTC", "Time zone in which days and months begin and times are shown, such as Europe/Berlin.")
	}
}

// parse works the period out. Days and months begin when they do in the zone, so that they join without gaps on the
// days on which clocks change, too (L18).
func (f *periodFlags) parse(now time.Time) (period, *time.Location, error) {
	zone, err := parseZone(f.zone)
	if err != nil {
		return period{}, nil, err
	}
	p, err := f.bounds(now.In(zone))
	if err != nil {
		return period{}, nil, err
	}
	if !p.from.Before(p.to) {
		return period{}, nil, fmt.Errorf("the period from %s to %s is empty", p.from.In(zone).Format(time.RFC3339), p.to.In(zone).Format(time.RFC3339))
	}
	return p, zone, nil
}

func (f *periodFlags) bounds(now time.Time) (period, error) {
	if f.month != "" {
		if f.from != "" || f.to != "" {
			return period{}, errors.New("--month names the whole period; leave out --from and --to, or --month")
		}
		month, err := time.Parse("2006-01", f.month)
		if err != nil {
			return period{}, fmt.Errorf("--month: %q is no month such as 2026-11", f.month)
		}
		return period{startOfDay(month.Year(), month.Month(), 1, now.Location()), startOfDay(month.Year(), month.Month()+1, 1, now.Location())}, nil
	}
	p := period{startOfDay(now.Year(), now.Month(), 1, now.Location()), now.UTC()}
	var err error
	if f.from != "" {
		if p.from, err = parseTime(f.from, now.Location()); err != nil {
			return period{}, fmt.Errorf("--from: %w", err)
		}
	}
	if f.to != "" {
		if p.to, err = parseTime(f.to, now.Location()); err != nil {
			return period{}, fmt.Errorf("--to: %w", err)
		}
	}
	return p, nil
}

func parseZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("--zone: %q is no time zone; use a name such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// parseTime reads a day, which begins when it does in the zone, or an RFC 3339 time.
func parseTime(text string, zone *time.Location) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return startOfDay(day.Year(), day.Month(), day.Day(), zone), nil
	}
	// RFC 3339 allows a lower-case T and Z.
	if t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text)); err == nil {
		return t.UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a day such as 2026-03-01 nor a time such as 2026-03-01T08:00:00Z", text)
}

// startOfDay is the first moment of a day in a zone. Days and months beyond a month's or year's count on, as in
// time.Date. Where clocks skip midnight, the day begins when they skip; where midnight comes twice, with the first.
func startOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	isDay := func(t time.Time) bool {
		y, m, d := t.In(zone).Date()
		return y == noon.Year() && m == noon.Month() && d == noon.Day()
	}
	start := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if transition, next := start.ZoneBounds(); !isDay(start) {
		start = next // before the gap
	} else if !transition.IsZero() && isDay(transition) {
		// The day has it all since the clocks changed: they skipped midnight, or went back over it.
		start = transition
		_, after := transition.Zone()
		_, before := transition.Add(-time.Nanosecond).Zone()
		if earlier := time.Date(year, month, day, 0, 0, 0, 0, time.FixedZone("", before)); before > after && earlier.Before(transition) {
			start = earlier
		}
	}
	return start.UTC()
}
