package meter

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

var (
	intervalsBucket = []byte("intervals") // sequence number, big endian → intakeapi.Interval
	recordsBucket   = []byte("records")   // pod UID → Record
	faultsBucket    = []byte("faults")    // sequence number, big endian → intakeapi.Fault
)

// faultLimit is how many faults wait at most; a GPU that has failed may raise the same error for hours, and the first ones say
// it.
const faultLimit = 1000

// lockTimeout is how long to wait for a previous agent process to let go of the spool.
const lockTimeout = 30 * time.Second

// errDamaged: the spool's file cannot be read as one.
var errDamaged = errors.New("the spool is damaged")

// Spool keeps intervals on disk until they are acknowledged, together with how far each pod's time is cut: both change
// in one transaction, synced to disk before it returns. It is safe for concurrent use.
type Spool struct {
	db *bbolt.DB
	// MovedAside is where a damaged spool was put when this one was opened; empty if it was sound.
	MovedAside string
	appended   chan struct{}

	mu      sync.Mutex
	records map[string]Record
	pending map[string]int
	faults  int
}

// SpooledInterval is an interval with its place in the spool.
type SpooledInterval struct {
	Sequence uint64
	intakeapi.Interval
}

// OpenSpool opens or creates the spool at path. A damaged file is moved aside, loudly, and an empty spool takes its
// place: what pods hold is then cut again from their start, and the ledger recognises what it has. A file that another
// process holds, or that cannot be read for lack of permission, is an error.
func OpenSpool(path string, logger logr.Logger) (*Spool, error) {
	s, err := openSpool(path)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, errDamaged) {
		return nil, fmt.Errorf("open spool %s: %w", path, err)
	}
	aside := fmt.Sprintf("%s.damaged-%d", path, time.Now().Unix())
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("move damaged spool aside: %w", err)
	}
	logger.Error(err, "The spool was damaged and is moved aside; held time of running pods is cut again from their start, and of pods that ended meanwhile the controller charges what the pods' own times say",
		"path", path, "movedTo", aside)
	if s, err = openSpool(path); err != nil {
		return nil, fmt.Errorf("open new spool %s: %w", path, err)
	}
	s.MovedAside = aside
	return s, nil
}

func openSpool(path string) (s *Spool, err error) {
	// A truncated or scrambled file shows itself in bbolt as a panic, or as a fault on the mapped pages beyond its end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			s, err = nil, fmt.Errorf("%w: %v", errDamaged, reason)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("another process has held it for %s: only one agent runs on a node", lockTimeout)
	case errors.Is(err, os.ErrPermission):
		return nil, err
	case err != nil:
		if info, statErr := os.Stat(path); statErr == nil && info.Mode().IsRegular() {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		return nil, err
	}
	s = &Spool{db: db, appended: make(chan struct{}, 1), records: map[string]Record{}, pending: map[string]int{}}
	if err := s.load(path); err != nil {
		_ = db.Close() // the first error says what is wrong
		return nil, err
	}
	return s, nil
}

// load reads everything, which also proves that everything can be read.
func (s *Spool) load(path string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if info, err := os.Stat(path); err != nil {
			return err
		} else if info.Size() < tx.Size() {
			return fmt.Errorf("%w: the file has %d bytes, %d are in use", errDamaged, info.Size(), tx.Size())
		}
		for _, name := range [][]byte{intervalsBucket, recordsBucket, faultsBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		err := tx.Bucket(intervalsBucket).ForEach(func(key, value []byte) error {
			interval, err := decodeInterval(key, value)
			s.pending[interval.PodUID]++
			return err
		})
		if err != nil {
			return err
		}
		err = tx.Bucket(faultsBucket).ForEach(func(key, value []byte) error {
			s.faults++
			_, err := decodeFault(key, value)
			return err
		})
		if err != nil {
			return err
		}
		return tx.Bucket(recordsBucket).ForEach(func(key, value []byte) error {
			var record Record
			if err := decode(value, &record); err != nil {
				return fmt.Errorf("record %q: %w", key, err)
			}
			s.records[string(key)] = record
			return nil
		})
	})
}

func decodeInterval(key, value []byte) (SpooledInterval, error) {
	if len(key) != 8 {
		return SpooledInterval{}, fmt.Errorf("%w: interval with key %q", errDamaged, key)
	}
	spooled := SpooledInterval{Sequence: binary.BigEndian.Uint64(key)}
	if err := decode(value, &spooled.Interval); err != nil {
		return SpooledInterval{}, fmt.Errorf("interval %d: %w", spooled.Sequence, err)
	}
	return spooled, nil
}

// Close lets go of the file.
func (s *Spool) Close() error { return s.db.Close() }

// State is what is known now, as a copy.
func (s *Spool) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Records: maps.Clone(s.records), Pending: maps.Clone(s.pending)}
}

// Depth is how many intervals wait.
func (s *Spool) Depth() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	depth := 0
	for _, n := range s.pending {
		depth += n
	}
	return depth
}

// Appended signals that intervals or faults have joined.
func (s *Spool) Appended() <-chan struct{} { return s.appended }

// Apply writes a decision, all or nothing; it is on disk when Apply returns.
func (s *Spool) Apply(decision Decision) error {
	if len(decision.Put)+len(decision.Forget)+len(decision.Intervals) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		records, intervals := tx.Bucket(recordsBucket), tx.Bucket(intervalsBucket)
		for _, record := range decision.Put {
			if err := put(records, []byte(record.PodUID), record); err != nil {
				return err
			}
		}
		for _, uid := range decision.Forget {
			if err := records.Delete([]byte(uid)); err != nil {
				return err
			}
		}
		for _, interval := range decision.Intervals {
			sequence, err := intervals.NextSequence()
			if err != nil {
				return err
			}
			if err := put(intervals, sequenceKey(sequence), interval); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("spool %d intervals: %w", len(decision.Intervals), err)
	}
	for _, record := range decision.Put {
		s.records[record.PodUID] = record
	}
	for _, uid := range decision.Forget {
		delete(s.records, uid)
	}
	for _, interval := range decision.Intervals {
		s.pending[interval.PodUID]++
	}
	if len(decision.Intervals) > 0 {
		s.signal()
	}
	return nil
}

// signal tells the sender that something waits.
func (s *Spool) signal() {
	select {
	case s.appended <- struct{}{}:
	default: // one signal is waiting already
	}
}

// Values are JSON behind its checksum: bbolt has none for what it stores, and a flipped bit in a time is money.
func put(bucket *bbolt.Bucket, key []byte, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return bucket.Put(key, append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(encoded, castagnoli)), encoded...))
}

func decode(stored []byte, value any) error {
	if len(stored) < 4 || binary.BigEndian.Uint32(stored) != crc32.Checksum(stored[4:], castagnoli) {
		return fmt.Errorf("%w: checksum differs", errDamaged)
	}
	if err := json.Unmarshal(stored[4:], value); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sequenceKey(sequence uint64) []byte { return binary.BigEndian.AppendUint64(nil, sequence) }

// Next returns the oldest intervals, at most most, of pods that skip does not name.
func (s *Spool) Next(most int, skip func(podUID string) bool) ([]SpooledInterval, error) {
	var next []SpooledInterval
	err := s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(intervalsBucket).Cursor()
		for key, value := cursor.First(); key != nil && len(next) < most; key, value = cursor.Next() {
			spooled, err := decodeInterval(key, value)
			if err != nil {
				return err
			}
			if !skip(spooled.PodUID) {
				next = append(next, spooled)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	return next, nil
}

// Oldest is the end of the interval that has waited longest, zero when none waits.
func (s *Spool) Oldest() (time.Time, error) {
	first, err := s.Next(1, func(string) bool { return false })
	if err != nil || len(first) == 0 {
		return time.Time{}, err
	}
	return first[0].End, nil
}

// Acknowledge removes intervals that the intake has answered for good.
func (s *Spool) Acknowledge(answered []SpooledInterval) error {
	if len(answered) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, interval := range answered {
			if err := tx.Bucket(intervalsBucket).Delete(sequenceKey(interval.Sequence)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("acknowledge %d intervals: %w", len(answered), err)
	}
	for _, interval := range answered {
		if s.pending[interval.PodUID]--; s.pending[interval.PodUID] <= 0 {
			delete(s.pending, interval.PodUID)
		}
	}
	return nil
}
