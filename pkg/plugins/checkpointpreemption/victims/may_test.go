package victims_test

import (
	"slices"
	"testing"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
)

// book: of 32 GPUs, research has 16 (vision 8, text none said), product 16 (ads 12). "loose" has no say anywhere.
func book() *victims.Book {
	b := victims.NewBook()
	b.Add("root", "", 0, false)
	b.Add("research", "root", 16, true)
	b.Add("vision", "research", 8, true)
	b.Add("text", "research", 0, false)
	b.Add("product", "root", 16, true)
	b.Add("ads", "product", 12, true)
	b.Add("loose", "", 0, false)
	return b
}

func TestReclaims(t *testing.T) {
	for _, c := range []struct {
		name              string
		use               map[string]int64
		preemptor, victim string
		gpus              int64
		want              bool
	}{
		{"within both guarantees", map[string]int64{"ads": 30}, "vision", "ads", 8, true},
		{"up to its shortfall and not beyond", map[string]int64{"ads": 30}, "vision", "ads", 9, false},
		{"what it uses counts", map[string]int64{"ads": 30, "vision": 4}, "vision", "ads", 5, false},
		{"the department is full: not from another department", map[string]int64{"text": 16, "ads": 16}, "vision", "ads", 1, false},
		{"the department is full: from its other teams", map[string]int64{"text": 16, "ads": 16}, "vision", "text", 8, true},
		{"a team without a say, through its department", map[string]int64{"ads": 30}, "text", "ads", 16, true},
		{"nobody guarantees anything", map[string]int64{"ads": 30}, "loose", "ads", 1, false},
		{"not from itself", map[string]int64{}, "vision", "vision", 1, false},
		{"an account that is not known", map[string]int64{"ads": 30}, "stranger", "ads", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := book()
			for account, gpus := range c.use {
				b.Use(account, gpus)
			}
			if got := b.Reclaims(c.preemptor, c.victim, c.gpus); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestGuards(t *testing.T) {
	for _, c := range []struct {
		preemptor, victim string
		want              []string
		own               bool
	}{
		{"vision", "ads", []string{"ads", "product"}, false},
		{"vision", "text", nil, false}, // the department's share stays within the department
		{"text", "vision", []string{"vision"}, false},
		{"vision", "vision", []string{"vision"}, true},
		{"text", "text", nil, true},
		{"vision", "loose", nil, false},
		{"vision", "stranger", nil, false},
		{"research", "vision", []string{"vision"}, false},
		{"vision", "research", nil, false},
	} {
		if got, own := book().Guards(c.preemptor, c.victim); !slices.Equal(got, c.want) || own != c.own {
			t.Errorf("%s takes from %s: guarded by %v, own %v; want %v, %v", c.preemptor, c.victim, got, own, c.want, c.own)
		}
	}
	b := book()
	b.Use("ads", 14)
	for account, want := range map[string]int64{"ads": 2, "product": 0, "root": 14, "loose": 0, "stranger": 0} {
		if got := b.Borrowed(account); got != want {
			t.Errorf("%s has borrowed %d, want %d", account, got, want)
		}
	}
}

// Parents come from objects that several people edit: a cycle must not hang anybody.
func TestCycle(t *testing.T) {
	b := victims.NewBook()
	b.Add("a", "b", 4, true)
	b.Add("b", "a", 4, true)
	b.Use("a", 1)
	b.Reclaims("a", "stranger", 1)
}
