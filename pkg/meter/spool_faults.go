package meter

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// SpooledFault is a device fault with its place in the spool.
type SpooledFault struct {
	Sequence uint64
	intakeapi.Fault
}

// AddFaults keeps faults until they are acknowledged, on disk when it returns. Beyond faultLimit waiting ones it drops the
// rest, and returns how many.
func (s *Spool) AddFaults(faults []intakeapi.Fault) (dropped int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := max(0, faultLimit-s.faults)
	if len(faults) > room {
		dropped, faults = len(faults)-room, faults[:room]
	}
	if len(faults) == 0 {
		return dropped, nil
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(faultsBucket)
		for _, fault := range faults {
			sequence, err := bucket.NextSequence()
			if err != nil {
				return err
			}
			if err := put(bucket, sequenceKey(sequence), fault); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return dropped, fmt.Errorf("spool %d device faults: %w", len(faults), err)
	}
	s.faults += len(faults)
	s.signal()
	return dropped, nil
}

// NextFaults returns the oldest faults, at most most.
func (s *Spool) NextFaults(most int) ([]SpooledFault, error) {
	s.mu.Lock()
	waiting := s.faults
	s.mu.Unlock()
	if waiting == 0 {
		return nil, nil // as nearly always
	}
	var next []SpooledFault
	err := s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(faultsBucket).Cursor()
		for key, value := cursor.First(); key != nil && len(next) < most; key, value = cursor.Next() {
			fault, err := decodeFault(key, value)
			if err != nil {
				return err
			}
			next = append(next, fault)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read spooled device faults: %w", err)
	}
	return next, nil
}

// AcknowledgeFaults removes faults that the intake has kept.
func (s *Spool) AcknowledgeFaults(kept []SpooledFault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, fault := range kept {
			if err := tx.Bucket(faultsBucket).Delete(sequenceKey(fault.Sequence)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("acknowledge %d device faults: %w", len(kept), err)
	}
	s.faults -= len(kept)
	return nil
}

func decodeFault(key, value []byte) (SpooledFault, error) {
	if len(key) != 8 {
		return SpooledFault{}, fmt.Errorf("%w: device fault with key %q", errDamaged, key)
	}
	spooled := SpooledFault{Sequence: binary.BigEndian.Uint64(key)}
	if err := decode(value, &spooled.Fault); err != nil {
		return SpooledFault{}, fmt.Errorf("device fault %d: %w", spooled.Sequence, err)
	}
	return spooled, nil
}
