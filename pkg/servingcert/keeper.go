package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkEvery is how often the Secret is looked at: a renewal by another replica is served after at most this long.
const checkEvery = time.Minute

// retryEvery is the wait after a failure, when there may be no certificate at all yet.
const retryEvery = 2 * time.Second

// authorityKeyName and AuthorityName are data keys beside the well-known ones of a TLS Secret.
const (
	authorityKeyName = "ca.key"
	// AuthorityName is the key of the authority's certificates, in the Secret and in the ConfigMap.
	AuthorityName = "ca.crt"
)

// Options configure a Keeper. Every field is required, but for ConfigMapName or Publish.
type Options struct {
	// Client reads and writes without a cache: a stale Secret would be renewed again and again.
	Client    client.Client
	Namespace string
	// SecretName keeps the keys, ConfigMapName publishes the authority.
	SecretName, ConfigMapName string
	// Publish, if set, is told the authority's certificates instead of the ConfigMap, whenever they are ensured. While it
	// fails, no new certificate is served.
	Publish func(ctx context.Context, authorities []byte) error
	// Hosts are the DNS names and IP addresses that clients call.
	Hosts  []string
	Clock  clock.Clock
	Logger logr.Logger
}

// Keeper keeps a valid serving certificate. It implements manager.Runnable and runs on every replica.
type Keeper struct {
	options Options
	current atomic.Pointer[tls.Certificate]
}

// New returns a keeper that has no certificate until Start has run.
func New(options Options) *Keeper { return &Keeper{options: options} }

// NeedLeaderElection is false: every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Certificate is a tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := k.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("the serving certificate is not ready yet")
}

// Ready is a health check: an error until there is a certificate to serve.
func (k *Keeper) Ready() error {
	_, err := k.Certificate(nil)
	return err
}

// Start keeps the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := checkEvery
		if err := k.Ensure(ctx); err != nil {
			k.options.Logger.Error(err, "Serving certificate could not be ensured; trying again")
			wait = retryEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.options.Clock.After(wait):
		}
	}
}

// Ensure reads the shared certificate, makes or renews it if need be, publishes its authority, and serves it from
// now on.
func (k *Keeper) Ensure(ctx context.Context) error {
	material, err := k.shared(ctx)
	if err != nil {
		return err
	}
	publish := k.publish
	if k.options.Publish != nil {
		publish = k.options.Publish
	}
	if err := publish(ctx, material.Authorities); err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(material.Certificate, material.Key)
	if err != nil {
		return fmt.Errorf("read the serving certificate in secret %s/%s: %w", k.options.Namespace, k.options.SecretName, err)
	}
	k.current.Store(&certificate)
	return nil
}

// shared returns what the Secret holds, renewed if need be. A write that loses to another replica's is an error of
// this round; the next one reads what the other wrote.
func (k *Keeper) shared(ctx context.Context) (Material, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: k.options.Namespace, Name: k.options.SecretName}
	err := k.options.Client.Get(ctx, key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Material{}, fmt.Errorf("read secret %s: %w", key, err)
	}
	next, changed, err := renew(materialOf(secret), k.options.Hosts, k.options.Clock.Now())
	if err != nil {
		return Material{}, err
	}
	if !changed {
		return next, nil
	}
	secret.Data = map[string][]byte{
		AuthorityName: next.Authorities, authorityKeyName: next.AuthorityKey,
		corev1.TLSCertKey: next.Certificate, corev1.TLSPrivateKeyKey: next.Key,
	}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		secret.Type = corev1.SecretTypeTLS
		err = k.options.Client.Create(ctx, secret)
	} else {
		err = k.options.Client.Update(ctx, secret)
	}
	if err != nil {
		return Material{}, fmt.Errorf("store the serving certificate in secret %s: %w", key, err)
	}
	k.options.Logger.Info("Serving certificate renewed", "secret", key.String())
	return next, nil
}

func materialOf(secret *corev1.Secret) Material {
	return Material{
		Authorities: secret.Data[AuthorityName], AuthorityKey: secret.Data[authorityKeyName],
		Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
	}
}

// publish makes the ConfigMap say authorities.
func (k *Keeper) publish(ctx context.Context, authorities []byte) error {
	configMap := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: k.options.Namespace, Name: k.options.ConfigMapName}
	err := k.options.Client.Get(ctx, key, configMap)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read config map %s: %w", key, err)
	}
	if !missing && bytes.Equal([]byte(configMap.Data[AuthorityName]), authorities) {
		return nil
	}
	configMap.Data = map[string]string{AuthorityName: string(authorities)}
	if missing {
		configMap.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		err = k.options.Client.Create(ctx, configMap)
	} else {
		err = k.options.Client.Update(ctx, configMap)
	}
	if err != nil {
		return fmt.Errorf("publish the certificate authority in config map %s: %w", key, err)
	}
	return nil
}
