package postgres

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed sql/*.sql
var queryFiles embed.FS

// queries are the statements of sql/*.sql by the name in their "-- name:" line. A "-- name: fragment X" is text that takes the
// place of {X} in statements, such as the columns that a scan function reads.
var queries = loadQueries(queryFiles, "sql")

// query returns a named statement. A missing one is a fault of this package and stops the program at its start.
func query(name string) string {
	text, ok := queries[name]
	if !ok {
		panic("postgres: no statement is named " + name)
	}
	return text
}

func loadQueries(files fs.FS, folder string) map[string]string {
	const marker, fragment = "-- name: ", "fragment "
	all, fragments := make(map[string]string), make(map[string]string)
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(files, path.Join(folder, entry.Name()))
		if err != nil {
			panic(err)
		}
		for _, part := range strings.Split(string(text), marker)[1:] {
			name, statement, _ := strings.Cut(part, "\n")
			if _, twice := all[name]; twice {
				panic(fmt.Sprintf("postgres: statement %s appears twice", name))
			}
			all[name] = withoutComments(statement)
			if short, ok := strings.CutPrefix(name, fragment); ok {
				delete(all, name)
				fragments["{"+short+"}"] = withoutComments(statement)
			}
		}
	}
	for name, statement := range all {
		for placeholder, text := range fragments {
			statement = strings.ReplaceAll(statement, placeholder, text)
		}
		all[name] = statement
	}
	return all
}

// withoutComments drops comment lines, which would travel with every execution.
func withoutComments(statement string) string {
	var kept []string
	for line := range strings.Lines(statement) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.TrimSuffix(strings.Join(kept, "\n"), ";")
}
