package cli

import (
	"strings"
	"testing"
	"time"
)

func TestPeriods(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags    periodFlags
		from, to string // in UTC
		problem  string
	}{
		{periodFlags{}, "2026-03-01T00:00:00Z", "2026-03-17T15:04:05Z", ""},
		{periodFlags{zone: "Europe/Berlin"}, "2026-02-28T23:00:00Z", "2026-03-17T15:04:05Z", ""},
		{periodFlags{from: "2026-03-02", to: "2026-03-03"}, "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z", ""},
		{periodFlags{from: "2026-03-02T01:00:00+01:00"}, "2026-03-02T00:00:00Z", "2026-03-17T15:04:05Z", ""},
		{periodFlags{from: "2026-03-02t01:00:00.25z", zone: "Asia/Tokyo"}, "2026-03-02T01:00:00.25Z", "2026-03-17T15:04:05Z", ""},
		{periodFlags{month: "2026-02"}, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", ""},
		{periodFlags{month: "2025-12", zone: "America/New_York"}, "2025-12-01T05:00:00Z", "2026-01-01T05:00:00Z", ""},
		// L18: a month in which clocks change is an hour longer or shorter, and so is the day.
		{periodFlags{month: "2026-03", zone: "Europe/Berlin"}, "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", ""},
		{periodFlags{from: "2026-03-29", to: "2026-03-30", zone: "Europe/Berlin"}, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", ""},
		{periodFlags{from: "2026-10-25", to: "2026-10-26", zone: "Europe/Berlin"}, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", ""},
		{periodFlags{from: "2026-03-02", to: "2026-03-02"}, "", "", "is empty"},
		{periodFlags{from: "2026-03-18"}, "", "", "is empty"},
		{periodFlags{from: "yesterday"}, "", "", `--from: "yesterday" is neither`},
		{periodFlags{to: "2026-02-30"}, "", "", `--to: "2026-02-30" is neither`},
		{periodFlags{month: "2026-13"}, "", "", `--month: "2026-13" is no month`},
		{periodFlags{month: "2026-11", from: "2026-11-02"}, "", "", "leave out --from and --to"},
		{periodFlags{zone: "Berlin"}, "", "", `--zone: "Berlin" is no time zone`},
	} {
		got, zone, err := test.flags.parse(now)
		if test.problem == "" {
			from, to := got.from.UTC().Format(time.RFC3339Nano), got.to.UTC().Format(time.RFC3339Nano)
			if err != nil || from != test.from || to != test.to || zone == nil {
				t.Errorf("%+v: %v, %s to %s; want %s to %s", test.flags, err, from, to, test.from, test.to)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%+v: %v, want %q", test.flags, err, test.problem)
		}
	}
}

// Every day of these zones begins with the first moment that has its date, where clocks change at midnight, too; so that
// days join without gap or overlap.
func TestDaysJoin(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", // half an hour
		"Asia/Beirut", "America/Santiago", "Africa/Cairo", // skip midnight
		"America/Havana", "Atlantic/Azores", // midnight comes twice
		"Asia/Kathmandu", "Pacific/Chatham",
	} {
		zone, err := parseZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for day := range 366 * 3 {
			start := startOfDay(2024, 1, 1+day, zone)
			want := time.Date(2024, 1, 1+day, 12, 0, 0, 0, time.UTC).Format(time.DateOnly)
			if got := start.In(zone).Format(time.DateOnly); got != want {
				t.Fatalf("%s: %s begins at %s, which is %s", name, want, start, got)
			}
			if before := start.Add(-time.Nanosecond).In(zone).Format(time.DateOnly); before >= want {
				t.Fatalf("%s: %s begins at %s, and the moment before is of %s", name, want, start, before)
			}
			length := startOfDay(2024, 1, 2+day, zone).Sub(start)
			if length < 23*time.Hour || length > 25*time.Hour {
				t.Fatalf("%s: %s has %s", name, want, length)
			}
		}
	}
}
