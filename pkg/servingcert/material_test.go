package servingcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

var (
	t0    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hosts = names{"credit-controller.gpubank-system.svc", "127.0.0.1"}
)

func mustRenew(t *testing.T, current Material, hosts names, now time.Time) (Material, bool) {
	t.Helper()
	next, changed, err := renew(current, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	return next, changed
}

// verify is what an agent does that trusts authorities.
func verify(t *testing.T, m Material, authorities []byte, host string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	return err
}

func TestRenewKeepsWhatIsGood(t *testing.T) {
	first, changed := mustRenew(t, Material{}, hosts, t0)
	if !changed {
		t.Fatal("nothing was made from nothing")
	}
	for _, host := range hosts {
		if err := verify(t, first, first.Authorities, host, t0); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if again, changed := mustRenew(t, first, hosts, t0.Add(50*24*time.Hour)); changed || !bytes.Equal(again.Certificate, first.Certificate) {
		t.Error("a good certificate was made again")
	}
}

func TestRenewServingBeforeItExpires(t *testing.T) {
	first, _ := mustRenew(t, Material{}, hosts, t0)
	later := t0.Add(61 * 24 * time.Hour)
	next, changed := mustRenew(t, first, hosts, later)
	if !changed || bytes.Equal(next.Certificate, first.Certificate) {
		t.Fatal("a certificate with less than a third left was kept")
	}
	if !bytes.Equal(next.Authorities, first.Authorities) {
		t.Error("the authority was renewed too, although it is young")
	}
	if err := verify(t, next, first.Authorities, hosts[0], later); err != nil {
		t.Errorf("an agent with the old authority: %v", err)
	}
}

func TestRenewAuthorityKeepsItsPredecessorPublished(t *testing.T) {
	first, _ := mustRenew(t, Material{}, hosts, t0)
	later := t0.Add(17 * 30 * 24 * time.Hour)
	next, changed := mustRenew(t, first, hosts, later)
	if !changed || bytes.Equal(next.Authorities, first.Authorities) {
		t.Fatal("an authority with less than a third left was kept")
	}
	if err := verify(t, next, next.Authorities, hosts[0], later); err != nil {
		t.Errorf("an agent with the new bundle: %v", err)
	}
	if !bytes.HasSuffix(next.Authorities, first.Authorities) {
		t.Error("the predecessor is no longer published, although replicas may still serve under it")
	}
}

func TestRenewWhenNamesChangeOrTheSecretIsDamaged(t *testing.T) {
	first, _ := mustRenew(t, Material{}, hosts, t0)
	if next, changed := mustRenew(t, first, append(hosts, "intake.example.org"), t0); !changed || !bytes.Equal(next.Authorities, first.Authorities) {
		t.Error("a new name must renew the certificate and only that")
	}
	damaged := first
	damaged.AuthorityKey = []byte("not a key")
	next, changed := mustRenew(t, damaged, hosts, t0)
	if !changed {
		t.Fatal("a damaged authority was kept")
	}
	if err := verify(t, next, next.Authorities, hosts[0], t0); err != nil {
		t.Error(err)
	}
}
