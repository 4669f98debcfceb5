package ledger

// Table is the rows of one kind that a batch may touch, and what the batch has done to them so far.
type Table[T any] struct {
	rows    map[string]*tableRow[T]
	touched []string // keys in the order in which they were first touched, so that outcomes are reproducible
}

type tableRow[T any] struct {
	value   T
	stored  bool // the database has it
	removed bool
	touched bool
}

// Changes is what a batch did to a table, each list in the order of the first touch.
type Changes[T any] struct {
	Inserted []T
	Updated  []T
	Removed  []string
}

// Load puts a stored row into the table.
func (t *Table[T]) Load(key string, value T) {
	t.put(key, &tableRow[T]{value: value, stored: true})
}

// Get returns the row as it stands, nil if there is none. The caller must not change it; see Change.
func (t *Table[T]) Get(key string) *T {
	row := t.rows[key]
	if row == nil || row.removed {
		return nil
	}
	return &row.value
}

// All calls visit for every row, in no particular order.
func (t *Table[T]) All(visit func(key string, value *T)) {
	for key, row := range t.rows {
		if !row.removed {
			visit(key, &row.value)
		}
	}
}

func (t *Table[T]) put(key string, row *tableRow[T]) {
	if t.rows == nil {
		t.rows = make(map[string]*tableRow[T])
	}
	t.rows[key] = row
}

func (t *Table[T]) touch(key string, row *tableRow[T]) {
	if !row.touched {
		row.touched = true
		t.touched = append(t.touched, key)
	}
}

// insert adds a row that the table does not have.
func (t *Table[T]) insert(key string, value T) *T {
	row := t.rows[key]
	switch {
	case row == nil:
		row = &tableRow[T]{value: value}
		t.put(key, row)
	case row.removed:
		row.value, row.removed = value, false
	default:
		panic("ledger: insert of a row that exists: " + key)
	}
	t.touch(key, row)
	return &row.value
}

// change returns the row for changing.
func (t *Table[T]) change(key string) *T {
	row := t.rows[key]
	if row == nil || row.removed {
		panic("ledger: change of a row that does not exist: " + key)
	}
	t.touch(key, row)
	return &row.value
}

func (t *Table[T]) remove(key string) {
	t.change(key)
	t.rows[key].removed = true
}

// takeChanges returns what was done since the last call, and regards it as stored from now on.
func (t *Table[T]) takeChanges() Changes[T] {
	var changes Changes[T]
	updated := 0
	for _, key := range t.touched {
		if t.rows[key].stored {
			updated++
		}
	}
	if updated > 0 { // rows are large: lists that grew would be copied again and again
		changes.Updated = make([]T, 0, updated)
	}
	if inserted := len(t.touched) - updated; inserted > 0 {
		changes.Inserted = make([]T, 0, inserted)
	}
	for _, key := range t.touched {
		row := t.rows[key]
		switch {
		case row.removed && row.stored:
			changes.Removed = append(changes.Removed, key)
		case row.removed:
		case row.stored:
			changes.Updated = append(changes.Updated, row.value)
		default:
			changes.Inserted = append(changes.Inserted, row.value)
		}
		row.touched, row.stored = false, true
		if row.removed {
			delete(t.rows, key)
		}
	}
	t.touched = nil
	return changes
}
