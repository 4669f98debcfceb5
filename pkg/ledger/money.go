package ledger

// Microcredits is an amount of money: 10^-6 credit.
type Microcredits int64

// Credit is one credit. At the default rate it buys one GPU for one second.
const Credit Microcredits = 1_000_000

// Rate is a price in microcredits per GPU-second, 1 to MaxRate.
type Rate int64
