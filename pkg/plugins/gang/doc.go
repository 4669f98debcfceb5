// Package gang places pods that belong together at once or not at all. docs/designs/gang.md says why it is as it is.
//
// # Path of a gang
//
//	PreEnqueue   keeps members out of the queue, silently at first, while too few of them exist
//	PreFilter    opens a round for the first member if all that are needed fit now, and refuses otherwise; lets the others join
//	Filter       keeps other pods off what an open round still needs
//	PostFilter   gives a round up whose member found no node
//	Reserve      counts the member; Unreserve gives the round up, as does the sweep once its time is over
//	Permit       waits until the last member has a node, then closes the round: all go on together
//
// What the ledger is asked, package creditreservation does, in one command for the members of a closed round (RoundOf).
//
// # Rounds
//
//	            join (Reserve)
//	             ┌──┐
//	 open ───────┴► collecting ──last member──► admitted
//	(PreFilter)        │
//	                   └─ no node, member gone, time over ──► given up: everybody gives the node back, the gang rests
//
// Of gangs that ask for the same resources one collects at a time, so no two hold a part of what both need. A gang that waits holds nothing,
// and so does one without pods (B14).
//
// # Who is a member
//
// Groups answers it from watches' memory: pods by their PodGroup (Kubernetes' own or scheduler-plugins') or by a Job that asks for it. A
// group is in one namespace, so a name that somebody borrows concerns only its own namespace.
package gang
