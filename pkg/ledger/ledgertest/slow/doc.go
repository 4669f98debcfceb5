// Package slow is a second ledger, written from docs/designs/ledger-rules.md and the docstrings of the commands, to compare
// the real one with. It shares nouns and field checks with package ledger, and no rule: no Decide, no running sums, no lots
// that are counted down, no timelines.
//
// It keeps plain lists of what happened and adds them up from the start, in big integers, each time somebody asks. A change
// that turns out not to fit is undone by going back to a copy of the lists.
package slow
