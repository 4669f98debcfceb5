package failpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := "# armed by the test\n\nscheduler.after-allocate=kill\ncontroller.before-settle=kill@3\n meter.before-ack=pause \n"
	want := map[string]point{
		"scheduler.after-allocate": {action: kill},
		"controller.before-settle": {action: kill, hit: 3},
		"meter.before-ack":         {action: pause},
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
	for hit := 1; hit < 4; hit++ {
		if got := (point{action: kill}).at(hit); got != kill {
			t.Errorf("a kill at the next hit does not happen at hit %d", hit)
		}
	}
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
