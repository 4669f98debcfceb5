package placement

import "testing"

// Nearer is never dearer, at any level, and images never outweigh a device.
func TestTerms(t *testing.T) {
	if got := FarCost(Near{}, 0); got != 0 {
		t.Errorf("the first member pays %v", got)
	}
	if got := FarCost(Near{3, 3, 3}, 3); got > 1e-9 {
		t.Errorf("with all in its domain it pays %v", got)
	}
	if got := FarCost(Near{}, 3); got < farWeight-1e-9 || got > farWeight+1e-9 {
		t.Errorf("far from all it pays %v, want %v", got, farWeight)
	}
	for level := range levels {
		var none, one Near
		one[level] = 1
		if FarCost(one, 2) >= FarCost(none, 2) {
			t.Errorf("level %d: sharing a domain with one gains nothing", level)
		}
	}
	var rack, zone Near
	rack[LevelRack], zone[LevelZone] = 1, 1
	if FarCost(rack, 1) >= FarCost(zone, 1) {
		t.Error("a zone is nearer than a rack")
	}
	for _, bytes := range []int64{-1, 0, 1 << 30, 10 << 30, 1 << 60} {
		if gain := ImageGain(bytes); gain < 0 || gain > fillWeight/100.0 {
			t.Errorf("%d bytes gain %v", bytes, gain)
		}
	}
	if ImageGain(10<<30) <= ImageGain(1<<30) {
		t.Error("more of an image gains no more")
	}
}
