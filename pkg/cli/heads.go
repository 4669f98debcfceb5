package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// head is ledger.ChainHead as JSON has it.
type head struct {
	Account   string    `json:"account"`
	Entries   int64     `json:"entries"`
	LastEntry int64     `json:"last_entry"`
	LastAt    time.Time `json:"last_recorded_at"`
	Hash      string    `json:"sha256"`
}

func printHeads(ctx context.Context, command *cobra.Command, format string, store Auditor) error {
	all, err := store.ChainHeads(ctx)
	if err != nil {
		return fmt.Errorf("read the heads of chains: %w", err)
	}
	heads := make([]head, 0, len(all)) // not nil: JSON says [] when there are none
	for _, h := range all {
		heads = append(heads, head{h.Account, h.Entries, h.LastEntry, h.LastRecordedAt, hex.EncodeToString(h.Hash[:])})
	}
	return write(command, format, heads, func(out io.Writer) error { return writeHeads(out, heads) })
}

// headsTitle begins what --heads prints; lines that begin with # are skipped by --verify-heads.
const headsTitle = "# gpubank chain heads: account, entries, hash after the last of them"

func writeHeads(out io.Writer, heads []head) error {
	var text strings.Builder
	text.WriteString(headsTitle + "\n")
	for _, h := range heads {
		fmt.Fprintf(&text, "%s %d %s\n", h.Account, h.Entries, h.Hash)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// readPins reads what --heads printed; no file has none.
func readPins(path string) ([]ledger.ChainHead, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the pinned heads: %w", err)
	}
	var pins []ledger.ChainHead
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pin, err := parsePin(line)
		if err != nil {
			return nil, fmt.Errorf("--verify-heads=%s, line %d: %w; want what `kubectl credit audit --heads` printed", path, number, err)
		}
		pins = append(pins, pin)
	}
	if len(pins) == 0 { // nothing verified must not look like something verified
		return nil, fmt.Errorf("--verify-heads=%s has no heads; want what `kubectl credit audit --heads` printed", path)
	}
	return pins, nil
}

func parsePin(line string) (ledger.ChainHead, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return ledger.ChainHead{}, fmt.Errorf("%d fields instead of 3", len(fields))
	}
	pin := ledger.ChainHead{Account: fields[0]}
	var err error
	if pin.Entries, err = strconv.ParseInt(fields[1], 10, 64); err != nil || pin.Entries < 1 {
		return ledger.ChainHead{}, fmt.Errorf("%q is no number of entries", fields[1])
	}
	hash, err := hex.DecodeString(fields[2])
	if err != nil || copy(pin.Hash[:], hash) != len(pin.Hash) || len(hash) != len(pin.Hash) {
		return ledger.ChainHead{}, errors.New("the hash is not 64 hexadecimal digits")
	}
	return pin, nil
}
