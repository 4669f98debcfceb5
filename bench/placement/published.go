package placement

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Published are outcomes by trace and policy.
type Published map[string]map[string]Outcome

// simulator are the shares of GPU capacity allocated, in per cent, when 100 % and 130 % of capacity have been requested: means of ten
// seeds, averaged from the results that the simulator's repository (see PublicSource) ships.
var simulator = Published{
	"cpu100":     {"Random": {87.44, 89.11}, "BestFit": {93.26, 93.44}, against: {95.21, 95.35}},
	"default":    {"Random": {86.30, 87.47}, "BestFit": {92.86, 93.08}, against: {95.23, 95.39}},
	"gpushare40": {"Random": {84.86, 86.00}, "BestFit": {91.44, 91.69}, against: {93.96, 94.15}},
	"gpushare80": {"Random": {80.62, 81.22}, "BestFit": {86.66, 87.01}, against: {89.08, 89.30}},
	"gpuspec20":  {"Random": {85.90, 87.24}, "BestFit": {88.46, 93.30}, against: {94.66, 94.84}},
	"multigpu50": {"Random": {81.28, 90.27}, "BestFit": {95.62, 95.74}, against: {97.09, 97.18}},
}

// publishedFile, in the folder of the traces, adds outcomes for traces that simulator does not have: rows of trace, policy, seeds,
// and the two percentages, under a heading.
const publishedFile = "published.csv"

// readPublished returns the simulator's outcomes with those of the folder's file, if it has one, put over them.
func readPublished(folder string) (Published, error) {
	all := Published{}
	for trace, policies := range simulator {
		all[trace] = policies
	}
	path := filepath.Join(folder, publishedFile)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read published outcomes: %w", err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read published outcomes %s: %w", path, err)
	}
	added := Published{}
	for i, row := range rows[min(1, len(rows)):] {
		if len(row) < 5 {
			return nil, fmt.Errorf("read published outcomes %s, line %d: %d columns, not trace, policy, seeds and two percentages", path, i+2, len(row))
		}
		var outcome Outcome
		for at := range outcome {
			if outcome[at], err = strconv.ParseFloat(row[3+at], 64); err != nil {
				return nil, fmt.Errorf("read published outcomes %s, line %d: %w", path, i+2, err)
			}
		}
		trace := shortName(row[0])
		if added[trace] == nil {
			added[trace] = map[string]Outcome{}
		}
		added[trace][row[1]] = outcome
	}
	for trace, policies := range added {
		all[trace] = policies
	}
	return all, nil
}

// shortName is a trace's name without what all of them share.
func shortName(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(name), podPrefix), ".csv")
}
