package intake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// nodeNameClaim is where the API server states the node of the pod that a service-account token was issued to.
const nodeNameClaim = "authentication.kubernetes.io/node-name"

const (
	// reviewTTL is how long a confirmed token is believed without asking again. Revocation (the pod's deletion) takes
	// effect after at most this long.
	reviewTTL = time.Minute
	// reviewCacheSize bounds the cache; one entry per node agent is needed.
	reviewCacheSize = 8192
)

// TokenReviewer asks the API server whose token it is. An error means that it could not be asked.
type TokenReviewer interface {
	ReviewToken(ctx context.Context, token string, audience string) (authenticationv1.TokenReviewStatus, error)
}

// refusal is why a request is turned away: an HTTP status, a stable reason for the metric, a sentence for the agent.
type refusal struct {
	status  int
	reason  string
	message string
}

func (r *refusal) Error() string { return r.message }

// judgeToken decides whether a reviewed token may speak as a node agent, and for which node.
func judgeToken(review authenticationv1.TokenReviewStatus, agentUser string) (node string, refused *refusal) {
	if !review.Authenticated {
		return "", &refusal{http.StatusUnauthorized, "invalid_token", "the API server does not confirm the token: " + review.Error}
	}
	if !slices.Contains(review.Audiences, intakeapi.Audience) {
		return "", &refusal{http.StatusUnauthorized, "wrong_audience",
			fmt.Sprintf("the token is not for audience %s", intakeapi.Audience)}
	}
	if review.User.Username != agentUser {
		return "", &refusal{http.StatusForbidden, "wrong_account",
			fmt.Sprintf("%s may not report intervals; only %s may", review.User.Username, agentUser)}
	}
	nodes := review.User.Extra[nodeNameClaim]
	if len(nodes) != 1 || nodes[0] == "" {
		return "", &refusal{http.StatusForbidden, "no_node_claim", "the token names no node: it must be a token projected into the agent's pod"}
	}
	return nodes[0], nil
}

// authenticator answers which node a request speaks for, asking the API server at most once per token and reviewTTL.
type authenticator struct {
	reviewer  TokenReviewer
	agentUser string
	clock     clock.PassiveClock

	mu    sync.Mutex
	cache map[[sha256.Size]byte]confirmed
}

type confirmed struct {
	node  string
	until time.Time
}

// authenticate returns the node that the request's token was issued on.
func (a *authenticator) authenticate(request *http.Request) (string, *refusal) {
	scheme, token, found := strings.Cut(request.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !found || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", &refusal{http.StatusUnauthorized, "no_token", "a bearer token is required"}
	}
	hash := sha256.Sum256([]byte(token))
	now := a.clock.Now()
	if node, ok := a.remembered(hash, now); ok {
		return node, nil
	}
	review, err := a.reviewer.ReviewToken(request.Context(), token, intakeapi.Audience)
	if err != nil {
		return "", &refusal{http.StatusServiceUnavailable, "review_unavailable", "the API server could not be asked about the token; send again later"}
	}
	node, refused := judgeToken(review, a.agentUser)
	if refused != nil {
		return "", refused
	}
	a.remember(hash, confirmed{node: node, until: now.Add(reviewTTL)}, now)
	return node, nil
}

func (a *authenticator) remembered(hash [sha256.Size]byte, now time.Time) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, ok := a.cache[hash]
	return entry.node, ok && now.Before(entry.until)
}

// remember keeps only confirmed tokens, so that made-up ones cannot push real ones out.
func (a *authenticator) remember(hash [sha256.Size]byte, entry confirmed, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= reviewCacheSize {
		for key, old := range a.cache {
			if !now.Before(old.until) {
				delete(a.cache, key)
			}
		}
	}
	if len(a.cache) < reviewCacheSize {
		a.cache[hash] = entry
	}
}

// asRefusal extracts a refusal from err, or describes err as a malformed request.
func asRefusal(err error) *refusal {
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return refused
	}
	return &refusal{http.StatusBadRequest, "malformed", err.Error()}
}
