package failpoint

import (
	"fmt"
	"strconv"
	"strings"
)

type action int

const (
	none action = iota
	kill
	pause
)

// point is one armed line. hit is the hit since the process started that a kill waits for, 0 for the next one; a pause
// ignores it.
type point struct {
	action action
	hit    int
}

func (p point) at(hit int) action {
	if p.action == kill && p.hit != 0 && hit != p.hit {
		return none
	}
	return p.action
}

func parse(text string) (map[string]point, error) {
	points := map[string]point{}
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, what, found := strings.Cut(line, "=")
		verb, count, counted := strings.Cut(what, "@")
		p := point{}
		switch verb {
		case "kill":
			p.action = kill
		case "pause":
			p.action = pause
		}
		if counted {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 || p.action != kill {
				return nil, fmt.Errorf("line %q: only kill takes @N, with N a whole number from 1", line)
			}
			p.hit = n
		}
		if !found || name == "" || p.action == none {
			return nil, fmt.Errorf("line %q: want <point>=kill, <point>=kill@N or <point>=pause", line)
		}
		points[name] = p
	}
	return points, nil
}
