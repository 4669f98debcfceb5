package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// PostgreSQL and the controller come back together after an outage, the controller first.
func TestADatabaseThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		own := &tables{clock: clock.RealClock{}, logger: logr.Discard(), fit: func(context.Context) error {
			if attempts++; attempts <= 20 {
				return errors.New("connection refused")
			}
			return nil
		}}
		ended := make(chan error, 1)
		own.attempt(t.Context())
		go func() { ended <- own.Start(t.Context()) }()
		<-time.After(time.Minute) // the bubble's clock: this waits for nothing real
		if own.Ready(nil) == nil {
			t.Error("ready before the tables were there")
		}
		if err := <-ended; err != nil || attempts != 21 {
			t.Errorf("ended with %v after %d attempts, want nil after 21", err, attempts)
		}
		if err := own.Ready(nil); err != nil {
			t.Errorf("not ready with current tables: %v", err)
		}
	})
}

func TestAProcessThatIsToldToEndWaitsForNoDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own := &tables{clock: clock.RealClock{}, logger: logr.Discard(), fit: func(context.Context) error {
			return errors.New("connection refused")
		}}
		ended := make(chan error, 1)
		go func() { ended <- own.Start(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || own.Ready(nil) == nil {
			t.Errorf("ended with %v, ready %v; want nil, not ready", err, own.Ready(nil) == nil)
		}
	})
}
