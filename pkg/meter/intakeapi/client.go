package intakeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrStaleEpoch: a newer agent of this node has registered. The process that gets it must stop reporting; it must
// not register again, or two agents would take the node from each other forever.
var ErrStaleEpoch = errors.New("a newer agent of this node has registered")

// StatusError is an answer other than 200.
type StatusError struct {
	Status  int
	Message string
	// RetryAfter is what the server asked to wait, 0 if it did not say.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("intake answered %d %s: %s", e.Status, http.StatusText(e.Status), e.Message)
}

// Is makes errors.Is(err, ErrStaleEpoch) true for a 409.
func (e *StatusError) Is(target error) bool {
	return target == ErrStaleEpoch && e.Status == http.StatusConflict
}

// ClientOptions say where the intake is and how to prove who we are.
type ClientOptions struct {
	// URL is the intake's base address, https only: a bearer token is sent to it.
	URL string
	// CAFile holds the PEM certificates that may have signed the intake's certificate; read again when it changes,
	// because the controller rotates its own authority. Empty means the system's.
	CAFile string
	// TokenFile holds the bearer token; read for every request, because projected tokens rotate.
	TokenFile string
	// Timeout bounds one request; 0 means 30 s, three times the controller's own bound on a group commit.
	Timeout time.Duration
}

// Client calls the intake. It is safe for concurrent use.
type Client struct {
	options ClientOptions

	mu     sync.Mutex
	caPEM  []byte
	client *http.Client
}

// NewClient checks options; files are read with each request, so that they may appear later.
func NewClient(options ClientOptions) (*Client, error) {
	options.URL = strings.TrimSuffix(options.URL, "/")
	if !strings.HasPrefix(options.URL, "https://") {
		return nil, fmt.Errorf("intake URL %q must begin with https://: a token is sent to it", options.URL)
	}
	if options.TokenFile == "" {
		return nil, errors.New("intake token file is not set: name the projected service-account token's path")
	}
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	return &Client{options: options}, nil
}

// Register announces this process and returns its epoch.
func (c *Client) Register(ctx context.Context, request RegisterRequest) (RegisterResponse, error) {
	var response RegisterResponse
	if err := c.post(ctx, RegisterPath, request, &response); err != nil {
		return RegisterResponse{}, fmt.Errorf("register agent of node %s: %w", request.Node, err)
	}
	if response.Epoch < 1 {
		return RegisterResponse{}, fmt.Errorf("register agent of node %s: intake answered epoch %d, which is never given out", request.Node, response.Epoch)
	}
	return response, nil
}

// Report sends intervals. The response has one result per interval, in order; anything else is an error.
func (c *Client) Report(ctx context.Context, request IntervalsRequest) (IntervalsResponse, error) {
	var response IntervalsResponse
	if err := c.post(ctx, IntervalsPath, request, &response); err != nil {
		return IntervalsResponse{}, fmt.Errorf("report %d intervals of node %s: %w", len(request.Intervals), request.Node, err)
	}
	if err := matchResults(request.Intervals, response.Results); err != nil {
		return IntervalsResponse{}, fmt.Errorf("report %d intervals of node %s: %w", len(request.Intervals), request.Node, err)
	}
	return response, nil
}

// ReportFaults sends faults; without an error, all of them are kept.
func (c *Client) ReportFaults(ctx context.Context, request FaultsRequest) error {
	var response FaultsResponse
	err := c.post(ctx, FaultsPath, request, &response)
	if err == nil && response.Kept != len(request.Faults) {
		err = fmt.Errorf("intake kept %d; nothing is taken as acknowledged", response.Kept)
	}
	if err != nil {
		return fmt.Errorf("report %d device faults of node %s: %w", len(request.Faults), request.Node, err)
	}
	return nil
}

// matchResults refuses an answer that could make the agent forget an interval nobody has charged.
func matchResults(intervals []Interval, results []Result) error {
	if len(results) != len(intervals) {
		return fmt.Errorf("intake answered %d results for %d intervals; nothing is taken as acknowledged", len(results), len(intervals))
	}
	for i, result := range results {
		if result.Key != intervals[i].Key {
			return fmt.Errorf("result %d is for %q, expected %q; nothing is taken as acknowledged", i, result.Key, intervals[i].Key)
		}
		switch result.Outcome {
		case Charged, Repeat, Refused:
		default:
			return fmt.Errorf("result %d has the unknown outcome %q; nothing is taken as acknowledged", i, result.Outcome)
		}
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	token, err := os.ReadFile(c.options.TokenFile)
	if err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	client, err := c.httpClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	httpRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, c.options.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	httpRequest.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	httpRequest.Header.Set("Content-Type", "application/json")
	httpResponse, err := client.Do(httpRequest)
	if err != nil {
		return err
	}
	defer httpResponse.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(httpResponse.Body, MaxBodyBytes))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if httpResponse.StatusCode != http.StatusOK {
		return statusError(httpResponse, answer)
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

func statusError(response *http.Response, answer []byte) *StatusError {
	var body ErrorResponse
	if json.Unmarshal(answer, &body) != nil || body.Message == "" {
		// Something between us and the intake answered, such as a proxy; its first words are the best clue there is.
		body.Message = string(answer[:min(len(answer), 200)])
	}
	// Retry-After may also be a date; gpubank's intake sends seconds, and backing off by itself is right otherwise.
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		seconds = 0
	}
	return &StatusError{Status: response.StatusCode, Message: body.Message, RetryAfter: time.Duration(seconds) * time.Second}
}

// httpClient returns a client that trusts what CAFile holds now.
func (c *Client) httpClient() (*http.Client, error) {
	var caPEM []byte
	if c.options.CAFile != "" {
		var err error
		if caPEM, err = os.ReadFile(c.options.CAFile); err != nil {
			return nil, fmt.Errorf("read the intake's certificate authority: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && bytes.Equal(caPEM, c.caPEM) {
		return c.client, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.options.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(caPEM) {
			return nil, fmt.Errorf("the intake's certificate authority file %s holds no PEM certificate", c.options.CAFile)
		}
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	c.caPEM = caPEM
	c.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second},
		// A redirect would carry the token to whoever it names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c.client, nil
}
