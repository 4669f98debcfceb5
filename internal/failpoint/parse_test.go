package failpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := "# armed by the test\n\nscheduler.after-allocate=kill\ncontroller.before-settle=kill@3\n meter.before-ack=pause \n"
	want := map[string]point{
		"scheduler.after-allocate": {action: kill, hit: 1},
		"controller.before-settle": {action: kill, hit: 3},
		"meter.before-ack":         {action: pause, hit: 1},
	}
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(point{})); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"scheduler.after-bind", "=kill", "a=explode", "a=kill@0", "a=kill@x", "a=pause@2"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("parse(%q) accepted it", bad)
		}
	}
}

func TestKillWaitsForItsHit(t *testing.T) {
	third := point{action: kill, hit: 3}
	for hit, want := range map[int]action{1: none, 2: none, 3: kill, 4: none} {
		if got := third.at(hit); got != want {
			t.Errorf("at hit %d: got %v, want %v", hit, got, want)
		}
	}
	if got := (point{}).at(1); got != none {
		t.Errorf("an unarmed point does %v", got)
	}
}
