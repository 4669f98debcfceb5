package intake

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APIServerReviewer asks the API server's TokenReview.
type APIServerReviewer struct {
	Client client.Client
}

// ReviewToken implements TokenReviewer.
func (r APIServerReviewer) ReviewToken(ctx context.Context, token string, audience string) (authenticationv1.TokenReviewStatus, error) {
	review := &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}
	if err := r.Client.Create(ctx, review); err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review an agent's token: %w", err)
	}
	return review.Status, nil
}
