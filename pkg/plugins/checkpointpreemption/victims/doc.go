// Package victims decides whom a pod may stop, what that destroys, and which choice destroys least. It is pure: no clock, no
// cluster. docs/designs/preemption.md has the rules and why they are so.
//
//	cost.go    lost GPU-seconds of one unit
//	may.go     who may take GPUs from whom
//	order.go   which of two choices is better
//	choose.go  the best choice on one node, exactly
package victims
