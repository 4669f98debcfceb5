package meter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func at(clock string) time.Time {
	t, err := time.Parse("15:04:05", clock)
	if err != nil {
		panic(err)
	}
	return t.AddDate(2026, 0, 0)
}

func TestCut(t *testing.T) {
	const late = "23:59:59"
	for name, test := range map[string]struct {
		held    Held
		lastCut time.Time
		now     string
		most    int
		want    []Span
	}{
		"nothing confirmed":                  {Held{Start: at("10:00:07"), Until: at("10:00:59")}, time.Time{}, late, 9, nil},
		"first ends on a boundary":           {Held{Start: at("10:00:07"), Until: at("10:01:00")}, time.Time{}, late, 9, []Span{{at("10:00:07"), at("10:01:00")}}},
		"start on a boundary":                {Held{Start: at("10:00:00"), Until: at("10:01:30")}, time.Time{}, late, 9, []Span{{at("10:00:00"), at("10:01:00")}}},
		"goes on after the last cut":         {Held{Start: at("10:00:07"), Until: at("10:03:01")}, at("10:01:00"), late, 9, []Span{{at("10:01:00"), at("10:02:00")}, {at("10:02:00"), at("10:03:00")}}},
		"last ends with the pod":             {Held{Start: at("10:00:07"), Until: at("10:01:20"), Ended: true}, at("10:01:00"), late, 9, []Span{{at("10:01:00"), at("10:01:20")}}},
		"end on a boundary":                  {Held{Start: at("10:00:07"), Until: at("10:02:00"), Ended: true}, at("10:01:00"), late, 9, []Span{{at("10:01:00"), at("10:02:00")}}},
		"shorter than an interval":           {Held{Start: at("10:00:07"), Until: at("10:00:08"), Ended: true}, time.Time{}, late, 9, []Span{{at("10:00:07"), at("10:00:08")}}},
		"no time at all":                     {Held{Start: at("10:00:07"), Until: at("10:00:07"), Ended: true}, time.Time{}, late, 9, nil},
		"end before what was cut":            {Held{Start: at("10:00:07"), Until: at("10:00:50"), Ended: true}, at("10:01:00"), late, 9, nil},
		"end before the start":               {Held{Start: at("10:00:07"), Until: at("10:00:00"), Ended: true}, time.Time{}, late, 9, nil},
		"not into the future":                {Held{Start: at("10:00:07"), Until: at("10:05:00")}, time.Time{}, "10:01:30", 9, []Span{{at("10:00:07"), at("10:01:00")}}},
		"an end in the future waits":         {Held{Start: at("10:00:07"), Until: at("10:01:40"), Ended: true}, time.Time{}, "10:01:30", 9, []Span{{at("10:00:07"), at("10:01:00")}}},
		"a clock that went back cuts none":   {Held{Start: at("10:00:07"), Until: at("10:01:40")}, at("10:03:00"), "10:01:45", 9, nil},
		"at most as many as there is room":   {Held{Start: at("10:00:07"), Until: at("10:09:00"), Ended: true}, time.Time{}, late, 2, []Span{{at("10:00:07"), at("10:01:00")}, {at("10:01:00"), at("10:02:00")}}},
		"no room, nothing cut, nothing lost": {Held{Start: at("10:00:07"), Until: at("10:09:00"), Ended: true}, time.Time{}, late, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Cut(test.held, test.lastCut, at(test.now), time.Minute, test.most)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Cut (-want +got):\n%s", diff)
			}
		})
	}
}

// Boundaries are multiples of the interval since 1970 for any interval, not since the year 1 as time.Truncate has it.
func TestBoundaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "seconds")) * time.Second
		from := time.UnixMicro(rapid.Int64Range(-1e15, 4e15).Draw(t, "from"))
		boundary := boundaryAfter(from, interval)
		if boundary.UnixMicro()%interval.Microseconds() != 0 {
			t.Errorf("%v is no multiple of %v", boundary, interval)
		}
		if !boundary.After(from) || boundary.Sub(from) > interval {
			t.Errorf("boundary %v does not follow %v within %v", boundary, from, interval)
		}
	})
}

// L26, L21: the same held time is cut into the same spans, however often and when Cut is asked.
func TestCutIsTheSameHoweverItIsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, 90).Draw(t, "interval")) * time.Second
		start := time.Unix(rapid.Int64Range(1_700_000_000, 1_700_001_000).Draw(t, "start"), 0).UTC()
		end := start.Add(time.Duration(rapid.Int64Range(0, 600).Draw(t, "held")) * time.Second)
		far := end.Add(time.Hour)
		want := Cut(Held{Start: start, Until: end, Ended: true}, time.Time{}, far, interval, 10_000)

		var got []Span
		lastCut := time.Time{}
		look := func(held Held, now time.Time, most int) {
			for _, span := range Cut(held, lastCut, now, interval, most) {
				got = append(got, span)
				lastCut = span.End
			}
		}
		for range rapid.IntRange(0, 30).Draw(t, "looks") {
			until := start.Add(time.Duration(rapid.Int64Range(-100, int64(end.Sub(start)/time.Second)).Draw(t, "until")) * time.Second)
			now := until.Add(time.Duration(rapid.Int64Range(-300, 300).Draw(t, "skew")) * time.Second)
			look(Held{Start: start, Until: until}, now, rapid.IntRange(0, 5).Draw(t, "most"))
		}
		look(Held{Start: start, Until: end, Ended: true}, far, 10_000)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("asked often (-want once +got):\n%s", diff)
		}
	})
}

// L28: a clock that steps forward does not turn the step into held time, unless it stands.
func TestSteadyClock(t *testing.T) {
	var clock SteadyClock
	start := at("10:00:00")
	now := func(wall string, elapsed time.Duration) string {
		return clock.Now(at(wall), elapsed).Format("15:04:05")
	}
	for _, look := range []struct {
		wall    string
		elapsed time.Duration
		want    string
	}{
		{"10:00:00", 0, "10:00:00"},
		{"10:00:06", 5 * time.Second, "10:00:06"}, // slewing is followed
		{"11:00:11", 10 * time.Second, "10:00:11"},
		{"11:05:11", 310 * time.Second, "10:05:11"},
		{"10:05:16", 315 * time.Second, "10:05:16"}, // put right
		{"12:00:00", 320 * time.Second, "10:05:21"},
		{"12:09:59", 919 * time.Second, "10:15:20"},
		{"12:10:00", 920 * time.Second, "12:10:00"}, // has stood for ten minutes
		{"12:00:00", 925 * time.Second, "12:00:00"}, // back: followed at once
		{"12:00:05", 930 * time.Second, "12:00:05"},
	} {
		if got := now(look.wall, look.elapsed); got != look.want {
			t.Errorf("wall clock %s after %v: %s, want %s", look.wall, look.elapsed, got, look.want)
		}
	}
	if clock.Steps != 3 {
		t.Errorf("%d steps since %v, want 3", clock.Steps, start)
	}
}
