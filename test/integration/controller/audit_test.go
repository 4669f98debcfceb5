package controller_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// After everything that the other tests did nothing is frozen. Then somebody with every right changes an entry: the controller,
// with its own rights, freezes that account alone, and says why where people look.
func testAudit(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "audited", 100)
	s.team(t, "untouched", 100)
	s.eventually(t, func(ctx context.Context) string {
		report, err := s.ledger.VerifyChains(ctx, nil)
		return unless(err == nil && report.Unsealed == 0 && report.Sealed > 0 && len(report.Violations) == 0, "chains: %+v, %v", report, err)
	})
	frozen, err := s.ledger.FrozenAccounts(ctx)
	must(t, err)
	if len(frozen) > 0 {
		t.Fatalf("frozen without reason: %+v", frozen)
	}

	tamper := func(statement string) {
		t.Helper()
		address, err := url.Parse(s.databaseURL)
		must(t, err)
		conn, err := pgx.Connect(ctx, clustertest.Postgres(t).AdminURL(strings.TrimPrefix(address.Path, "/")))
		must(t, err)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "SET session_replication_role = replica; "+statement)
		must(t, err)
	}
	tamper("UPDATE entry SET reason = reason || ' or so' WHERE credit = 'audited'")
	s.eventually(t, func(ctx context.Context) string {
		frozen, err := s.ledger.FrozenAccounts(ctx)
		return unless(err == nil && len(frozen) == 1 && frozen[0].Name == "audited" && strings.Contains(frozen[0].Frozen, "is not what was sealed"),
			"frozen: %+v, %v", frozen, err)
	})
	s.eventually(t, func(ctx context.Context) string {
		events := &corev1.EventList{}
		err := s.admin.List(ctx, events)
		for _, event := range events.Items {
			if event.Reason == "AuditMismatch" && event.InvolvedObject.Kind == "CreditAccount" && event.InvolvedObject.Name == "audited" {
				return ""
			}
		}
		return unless(false, "no event about the audit, %v", err)
	})
	s.eventually(t, func(context.Context) string {
		text := s.metrics(t)
		return unless(strings.Contains(text, `gpubank_ledger_audit_violations{invariant="I8"} 1`) && strings.Contains(text, "gpubank_ledger_frozen_accounts 1"), "metrics:\n%s", text)
	})
	tamper("UPDATE entry SET reason = replace(reason, ' or so', '') WHERE credit = 'audited'")
	s.submit(t, ledger.UnfreezeAccount{Key: "unfreeze:audited", Account: "audited", Reason: "put right", Actor: "test"})
	s.eventually(t, func(context.Context) string {
		text := s.metrics(t)
		return unless(strings.Contains(text, `gpubank_ledger_audit_violations{invariant="I8"} 0`) && strings.Contains(text, "gpubank_ledger_frozen_accounts 0"), "metrics:\n%s", text)
	})
}
