package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnsureParts builds commands of this checkout (import paths below the module, such as "cmd/scheduler") and returns the
// folder they are in, under the last element of their paths. What is up to date is not linked again. tags are build
// tags, such as "failpoints"; each set has its own folder.
func EnsureParts(ctx context.Context, progress func(line string), tags []string, paths ...string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for gpubank's programs: %w", err)
	}
	// Two checkouts side by side must not replace each other's programs.
	sum := sha256.Sum256([]byte(root))
	tags = slices.Sorted(slices.Values(tags))
	dir := filepath.Join(cache, "gpubank", "parts", hex.EncodeToString(sum[:6]), strings.Join(append([]string{"build"}, tags...), "-"))
	unlock, err := lock(ctx, dir, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	arguments := []string{"-tags", strings.Join(tags, ","), "-o", dir + string(filepath.Separator)}
	for _, path := range paths {
		arguments = append(arguments, "./"+path)
	}
	if err := goBuild(ctx, root, "gpubank's programs", progress, arguments...); err != nil {
		return "", err
	}
	return dir, nil
}
