package kueue

import "sync"

// waiting are the Jobs that were refused for want of credits, by the accounts whose change may help them. It is an aid to be quick: each of them
// is asked about again anyway.
type waiting struct {
	mu   sync.Mutex
	jobs map[Key][]string
}

func (w *waiting) put(key Key, accounts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == nil {
		w.jobs = map[Key][]string{}
	}
	w.jobs[key] = accounts
}

func (w *waiting) forget(key Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, key)
}

// on returns the Jobs that wait for an account; all of them for the empty name.
func (w *waiting) on(account string) []Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []Key
	for key, accounts := range w.jobs {
		for _, name := range accounts {
			if account == "" || name == account {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}
