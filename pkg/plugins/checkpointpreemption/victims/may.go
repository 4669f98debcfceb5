package victims

// maxDepth bounds walks up the account tree, which may hold a cycle for as long as the ledger refuses it.
const maxDepth = 64

// Book is who may use how many GPUs of one class, and who does. A Book is not changed once it is in use.
type Book struct {
	accounts map[string]*share
}

type share struct {
	parent string
	// guaranteed GPUs; limited says whether the account's policy names the class at all.
	guaranteed int64
	limited    bool
	used       int64 // by the account and everything below it
}

// NewBook returns a Book without accounts.
func NewBook() *Book { return &Book{accounts: map[string]*share{}} }

// Add makes an account known. limited is false where its policy says nothing about the class; then guaranteed does not count.
func (b *Book) Add(account, parent string, guaranteed int64, limited bool) {
	b.accounts[account] = &share{parent: parent, guaranteed: guaranteed, limited: limited}
}

// Use counts GPUs that an account holds, for it and for every account above it.
func (b *Book) Use(account string, gpus int64) {
	for _, name := range b.chain(account) {
		b.accounts[name].used += gpus
	}
}

// chain is the account and those above it, as far as they are known.
func (b *Book) chain(account string) []string {
	var chain []string
	for len(chain) < maxDepth {
		s, known := b.accounts[account]
		if !known {
			return chain
		}
		chain = append(chain, account)
		if s.parent == "" {
			return chain
		}
		account = s.parent
	}
	return chain
}

// below is account and those above it, up to but not including the first that is also other or above other.
func (b *Book) below(account, other string) []string {
	chain := b.chain(account)
	shared := map[string]bool{}
	for _, name := range b.chain(other) {
		shared[name] = true
	}
	for i, name := range chain {
		if shared[name] {
			return chain[:i]
		}
	}
	return chain
}

// Reclaims reports whether preemptor may take borrowed GPUs from victim whatever their priorities: with so many more, neither it nor any
// account between it and what both belong to would be above its guaranteed share. Accounts whose policy does not name the
// class have no say; one at least has to.
func (b *Book) Reclaims(preemptor, victim string, gpus int64) bool {
	some := false
	for _, name := range b.below(preemptor, victim) {
		s := b.accounts[name]
		if !s.limited {
			continue
		}
		if s.guaranteed-s.used < gpus {
			return false
		}
		some = true
	}
	return some
}

// Guards are the accounts whose guaranteed share bounds what preemptor may take from victim, by name: those from the victim's up to but
// not including what both belong to. Where both are the same account it is that one, whose own guarantee it may take from, if it must.
func (b *Book) Guards(preemptor, victim string) (guards []string, own bool) {
	if preemptor == victim {
		if s, known := b.accounts[victim]; known && s.limited {
			return []string{victim}, true
		}
		return nil, true
	}
	for _, name := range b.below(victim, preemptor) {
		if b.accounts[name].limited {
			guards = append(guards, name)
		}
	}
	return guards, false
}

// Borrowed is how many GPUs an account uses beyond its guaranteed share, 0 or more.
func (b *Book) Borrowed(account string) int64 {
	s, known := b.accounts[account]
	if !known {
		return 0
	}
	return max(0, s.used-s.guaranteed)
}
