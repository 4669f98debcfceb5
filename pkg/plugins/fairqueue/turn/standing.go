package turn

// Standing is how an account competes for one class, for people and metrics.
type Standing struct {
	Account, Class string
	// InUse GPUs by the account and everything below it, Average of the same lately.
	InUse   int64
	Average float64
	// Share of the class it has most of, by its weight.
	Share float64
	// Waiting is how many of its own pods are in the queue for this class, Ready how many of these only wait for their turn or a limit.
	Waiting, Ready int
}

// Standings of all accounts, for each class that they use or wait for.
func (q *Queue) Standings() []Standing {
	type key struct{ account, class string }
	waiting, able := map[key]int{}, map[key]int{}
	for _, i := range q.items {
		waiting[key{i.Account, i.Class}]++
		if i.state == ready {
			able[key{i.Account, i.Class}]++
		}
	}
	var all []Standing
	q.each(func(n *node) {
		if n.account == nil {
			return
		}
		for _, class := range q.classes {
			u, k := n.uses[class], key{n.name, class}
			if u == nil && waiting[k] == 0 {
				continue
			}
			s := Standing{Account: n.name, Class: class, Share: n.share, Waiting: waiting[k], Ready: able[k]}
			if u != nil {
				s.InUse, s.Average = u.inUse, u.average
			}
			all = append(all, s)
		}
	})
	return all
}
