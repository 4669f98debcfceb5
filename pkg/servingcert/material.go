package servingcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// authorityLifetime and servingLifetime are renewed with a third left: after 16 and 2 months.
	authorityLifetime = 2 * 365 * 24 * time.Hour
	servingLifetime   = 90 * 24 * time.Hour
	// backdate tolerates node clocks that run behind.
	backdate = time.Hour
)

// Material is an authority and a serving certificate it signed, all PEM.
type Material struct {
	// Authorities holds the current authority's certificate first, then its predecessor while that is valid.
	Authorities  []byte
	AuthorityKey []byte
	Certificate  []byte
	Key          []byte
}

// names is what the serving certificate is valid for: DNS names or IP addresses.
type names []string

// renew returns material that is good at now: the given one, or one with a new serving certificate, or with a new
// authority as well. changed says whether anything had to be made.
func renew(current Material, hosts names, now time.Time) (next Material, changed bool, err error) {
	authority, authorityKey, err := current.authority()
	if err != nil || expiresSoon(authority, now) {
		next, err = newAuthority(current.Authorities, now)
		if err != nil {
			return Material{}, false, err
		}
		if authority, authorityKey, err = next.authority(); err != nil {
			return Material{}, false, err
		}
		changed = true
	} else {
		next = current
	}
	if !changed && servingIsGood(current, authority, hosts, now) {
		return current, false, nil
	}
	next.Certificate, next.Key, err = newServing(authority, authorityKey, hosts, now)
	return next, true, err
}

// expiresSoon reports whether less than a third of the certificate's lifetime is left.
func expiresSoon(certificate *x509.Certificate, now time.Time) bool {
	lifetime := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotAfter.Sub(now) < lifetime/3
}

func servingIsGood(m Material, authority *x509.Certificate, hosts names, now time.Time) bool {
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	if err != nil || expiresSoon(pair.Leaf, now) || pair.Leaf.CheckSignatureFrom(authority) != nil {
		return false
	}
	for _, host := range hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func (m Material) authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.X509KeyPair(m.Authorities, m.AuthorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, errors.New("read the certificate authority: not an ECDSA authority")
	}
	return pair.Leaf, key, nil
}

// newAuthority puts a new authority in front of the still valid first one of old.
func newAuthority(old []byte, now time.Time) (Material, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Material{}, fmt.Errorf("make the certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("gpubank serving authority %d", now.Unix())},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	certificate, keyPEM, err := sign(template, template, key, key)
	if err != nil {
		return Material{}, err
	}
	if block, _ := pem.Decode(old); block != nil {
		if previous, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(previous.NotAfter) {
			certificate = append(bytes.Clone(certificate), pem.EncodeToMemory(block)...)
		}
	}
	return Material{Authorities: certificate, AuthorityKey: keyPEM}, nil
}

func newServing(authority *x509.Certificate, authorityKey *ecdsa.PrivateKey, hosts names, now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the serving key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "gpubank serving"},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(servingLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, authority, private, authorityKey)
}

// sign returns the certificate of key's public half, signed by parentKey, and key itself.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (certificate, keyPEM []byte, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("choose a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate %q: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of %q: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
