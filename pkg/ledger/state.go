package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is what a batch of commands is decided against: the rows that the commands touch, and no others. Whoever loads
// it must hold locks that keep these rows as they are until the outcome is stored. It has to contain
//
//   - every account that a command names or that a loaded reservation or allocation belongs to or is paid by, with all its
//     ancestors, and the lots of these accounts that have something free or held;
//   - the newest rate of every class that a command names;
//   - every reservation that a command names or that a loaded allocation belongs to;
//   - every allocation that a command names, and all open ones of the reservations that Allocate and CloseReservation name;
//   - of an allocation that RecordInterval names, the intervals that overlap it; of one that EndAllocation names, all; of both,
//     what their intervals were if they are compacted;
//   - the device holds of the GPUs that RecordInterval names: the pod's own, and those that overlap the time from its first
//     interval to its last, the new ones included;
//   - what is remembered of the commands' keys;
//   - of an account whose parent or policy SetAccount changes, what its subtree has spent (LoadSpending);
//   - of an account that SetAccount names and that does not exist, the last policy version of one of that name (LastPolicies);
//   - the entries and discrepancies that Adjust names;
//   - the epochs of the leaders and nodes that commands name, and the uses of accounts that RemoveAccount names.
//
// Decide changes it as it goes. The zero value is an empty ledger.
type State struct {
	Accounts     Table[Account]
	Rates        Table[RateVersion] // by class, the newest version
	Reservations Table[Reservation]
	Allocations  Table[Allocation]
	Lots         Table[Lot] // by key; see LoadLot
	// Entries are those that adjustments correct, by ID; Discrepancies those that they close, by key.
	Entries       map[int64]Entry
	Discrepancies map[string]Discrepancy
	// Devices is keyed by DeviceKey.
	Devices Table[DeviceHold]

	// LeaderEpochs and NodeEpochs are the current epochs by leadership and node name.
	LeaderEpochs map[string]int64
	NodeEpochs   map[string]int64
	// LastPolicies are the last policy versions of accounts that were removed: another one of that name counts on, because
	// versions are never edited.
	LastPolicies map[string]int64
	// Uses says what keeps an account from being removed.
	Uses map[string]AccountUse

	// Revision is what a changed account's becomes; above that of every loaded account. See Account.Revision.
	Revision int64

	timelines             map[string]*timeline
	accountLots           map[string][]string // keys of loaded lots, by account
	subtreeSpending       map[string]SubtreeSpending
	remembered            map[string]Remembered
	reservationPods       map[string][]string // pod UIDs of loaded allocations, by reservation
	devicePods            map[string][]string // pod UIDs that hold a GPU, by GPU UUID
	foundDiscrepancies    map[string]bool
	recentDiscrepancies   []Discrepancy
	recentEntries         []Entry
	recentRateVersions    []RateVersion
	recentSettings        map[string]bool
	recentRepriced        map[string]bool
	recentPolicies        []PolicyVersion
	recentSpending        []DailySpending
	recentResolutions     []Discrepancy
	recentRememberedOrder []string
	recentLoosened        map[string]bool
}

// AccountUse says what an account has that forbids removing it: as spender or as payer.
type AccountUse struct {
	Entries, Reservations bool
	Children              int64
}

// Remembered is a command that was decided: its key, the hash of its content and the verdict (I6).
type Remembered struct {
	Key         string
	ContentHash [32]byte
	// Verdict is the answer, without rows.
	Verdict Verdict
	// Lasting is what programs before ForgetRule wrote: it must be remembered for good.
	Lasting bool
	// Forget says when it may be forgotten.
	Forget ForgetRule
}

// Outcome is what Decide decided: a verdict for each command, in order, and the changes to store with one commit.
type Outcome struct {
	Verdicts []Verdict

	Accounts Changes[Account]
	// Settings are those of the updated accounts whose parent, policy or freeze changed.
	Settings     []Account
	Policies     []PolicyVersion // new versions
	Rates        []RateVersion   // new versions
	Lots         Changes[Lot]
	Reservations Changes[Reservation]
	// Repriced are the UIDs of updated reservations whose class, rate or MaxGPUs changed (EnsureHold).
	Repriced    map[string]bool
	Allocations Changes[Allocation]
	Devices     Changes[DeviceHold]
	// RemovedIntervals are to be removed before NewIntervals are inserted: they make room for them.
	RemovedIntervals []Interval
	NewIntervals     []Interval
	// Expanded are the pods whose intervals were compacted and no longer are: NewIntervals has all of them, for what is stored.
	Expanded []string
	// Loosened are the pods that have ended and whose intervals have changed all the same: they may be compacted again.
	Loosened      []string
	Entries       []Entry // in order; ID is zero, the database numbers them
	Discrepancies []Discrepancy
	// Resolutions are discrepancies that were found earlier and are closed now.
	Resolutions []Discrepancy
	// Spending is what to add to each spender's day; a spender and day may occur more than once.
	Spending   []DailySpending
	Remembered []Remembered
}

// LoadLot puts a stored lot into the state.
func (s *State) LoadLot(l Lot) {
	if s.Lots.Get(l.Key) == nil {
		s.indexLot(l)
	}
	s.Lots.Load(l.Key, l)
}

func (s *State) indexLot(l Lot) {
	if s.accountLots == nil {
		s.accountLots = make(map[string][]string)
	}
	s.accountLots[l.Account] = append(s.accountLots[l.Account], l.Key)
}

// DeviceKey is the key of a device hold in State.Devices.
func DeviceKey(gpuUUID, podUID string) string { return gpuUUID + "\x00" + podUID }

// LoadAllocation puts a stored allocation into the state.
func (s *State) LoadAllocation(a Allocation) {
	if s.Allocations.Get(a.PodUID) == nil {
		s.indexAllocation(a)
	}
	s.Allocations.Load(a.PodUID, a)
}

func (s *State) indexAllocation(a Allocation) {
	if s.reservationPods == nil {
		s.reservationPods = make(map[string][]string)
	}
	s.reservationPods[a.Reservation] = append(s.reservationPods[a.Reservation], a.PodUID)
}

// LoadDevice puts a stored device hold into the state.
func (s *State) LoadDevice(h DeviceHold) {
	key := DeviceKey(h.GPUUUID, h.PodUID)
	if s.Devices.Get(key) == nil {
		s.indexDevice(h)
	}
	s.Devices.Load(key, h)
}

func (s *State) indexDevice(h DeviceHold) {
	if s.devicePods == nil {
		s.devicePods = make(map[string][]string)
	}
	s.devicePods[h.GPUUUID] = append(s.devicePods[h.GPUUUID], h.PodUID)
}

// LoadInterval puts a stored interval into the state. Each must be loaded once.
func (s *State) LoadInterval(i Interval) { s.timeline(i.PodUID).load(i) }

// LoadCompacted puts stored compacted time into the state, after the allocation and whatever intervals of the pod are loaded: it
// says what these were.
func (s *State) LoadCompacted(c CompactedTime) error {
	a := s.Allocations.Get(c.PodUID)
	if a == nil {
		return fmt.Errorf("there is compacted time of pod %s, and no allocation", c.PodUID)
	}
	pieces, err := c.Expand(*a)
	if err != nil {
		return err
	}
	s.timeline(c.PodUID).loadCompacted(pieces)
	return nil
}

// loosen notes that the intervals of a pod that has ended have changed.
func (s *State) loosen(podUID string) {
	if s.recentLoosened == nil {
		s.recentLoosened = make(map[string]bool)
	}
	s.recentLoosened[podUID] = true
}

// LoadRemembered puts a remembered command into the state.
func (s *State) LoadRemembered(r Remembered) {
	if s.remembered == nil {
		s.remembered = make(map[string]Remembered)
	}
	s.remembered[r.Key] = r
}

// Remembers reports whether a command under this key was decided.
func (s *State) Remembers(key string) bool {
	_, known := s.remembered[key]
	return known
}

// Intervals returns the loaded and new intervals of a pod in the order of time.
func (s *State) Intervals(podUID string) []Interval {
	var all []Interval
	if t := s.timelines[podUID]; t != nil {
		for _, piece := range t.pieces {
			all = append(all, piece.Interval)
		}
	}
	return all
}

func (s *State) timeline(podUID string) *timeline {
	t := s.timelines[podUID]
	if t == nil {
		if s.timelines == nil {
			s.timelines = make(map[string]*timeline)
		}
		t = &timeline{}
		s.timelines[podUID] = t
	}
	return t
}

// openGPUs sums the GPUs of a reservation's open allocations, but for one pod's.
func (s *State) openGPUs(reservation, exceptPod string) (gpus int64, pods []string) {
	for _, pod := range s.reservationPods[reservation] {
		if a := s.Allocations.Get(pod); pod != exceptPod && a.Open() {
			gpus += a.GPUs
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods) // whatever the order in which they were loaded
	return gpus, pods
}

// path is an account followed by its ancestors up to the root; nil if there is no such account.
func (s *State) path(account string) []string {
	var path []string
	for name := account; name != ""; {
		row := s.Accounts.Get(name)
		if row == nil {
			if len(path) > 0 {
				panic("ledger: state lacks account " + name + ", an ancestor of " + account)
			}
			return nil
		}
		path = append(path, name)
		name = row.Parent
	}
	return path
}

// addDiscrepancy keeps a disagreement once.
func (s *State) addDiscrepancy(d Discrepancy, now time.Time) {
	if s.foundDiscrepancies == nil {
		s.foundDiscrepancies = make(map[string]bool)
	}
	if s.foundDiscrepancies[d.Key] {
		return
	}
	s.foundDiscrepancies[d.Key] = true
	d.FoundAt = now
	s.recentDiscrepancies = append(s.recentDiscrepancies, d)
}

// takeOutcome collects the changes since the last call.
func (s *State) takeOutcome(verdicts []Verdict) Outcome {
	out := Outcome{
		Verdicts:      verdicts,
		Accounts:      s.Accounts.takeChanges(),
		Policies:      s.recentPolicies,
		Rates:         s.recentRateVersions,
		Lots:          s.Lots.takeChanges(),
		Reservations:  s.Reservations.takeChanges(),
		Repriced:      s.recentRepriced,
		Allocations:   s.Allocations.takeChanges(),
		Devices:       s.Devices.takeChanges(),
		Entries:       s.recentEntries,
		Discrepancies: s.recentDiscrepancies,
		Resolutions:   s.recentResolutions,
		Spending:      s.recentSpending,
		Loosened:      slices.Sorted(maps.Keys(s.recentLoosened)),
	}
	for _, account := range out.Accounts.Updated {
		if s.recentSettings[account.Name] {
			out.Settings = append(out.Settings, account)
		}
	}
	s.recentSettings, s.recentRepriced = nil, nil
	s.Rates.takeChanges() // recentRateVersions has them, and versions between
	out.Remembered = make([]Remembered, 0, len(s.recentRememberedOrder))
	for _, key := range s.recentRememberedOrder {
		out.Remembered = append(out.Remembered, s.remembered[key])
	}
	for _, podUID := range slices.Sorted(maps.Keys(s.timelines)) {
		removed, added, expanded := s.timelines[podUID].takeChanges()
		if expanded {
			out.Expanded = append(out.Expanded, podUID)
		}
		out.RemovedIntervals = append(out.RemovedIntervals, removed...)
		out.NewIntervals = append(out.NewIntervals, added...)
	}
	s.recentRateVersions, s.recentEntries, s.recentDiscrepancies, s.recentRememberedOrder = nil, nil, nil, nil
	s.recentPolicies, s.recentSpending, s.recentResolutions, s.recentLoosened = nil, nil, nil, nil
	return out
}
