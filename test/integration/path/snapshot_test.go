package path_test

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

//go:embed testdata/snapshot.sql
var snapshotQuery string

// snapshot is everything that the ledger says about the story's account, in a form that is equal for two equal stories.
func (s *story) snapshot(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	connection, err := pgx.Connect(ctx, s.w.bank.DatabaseURL)
	must(t, err)
	defer connection.Close(ctx)
	rows, err := connection.Query(ctx, snapshotQuery, s.name)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.ReplaceAll(strings.Join(lines, "\n"), s.name, "team")
}

// endsAs ends the pod, and fails the test unless the ledger is then the undisturbed run's.
func (s *story) endsAs(t *testing.T, undisturbed string) {
	t.Helper()
	s.finish(t)
	s.settled(t)
	s.sameAs(t, undisturbed)
}

// sameAs fails the test when the story's ledger differs from an undisturbed run's.
func (s *story) sameAs(t *testing.T, undisturbed string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(undisturbed, "\n"), strings.Split(s.snapshot(t), "\n")); diff != "" {
		t.Errorf("the ledger differs from the undisturbed run's (-undisturbed +this):\n%s", diff)
	}
}
