// Package gangs restarts gangs whose policy says so: when a member dies, the others that run with it are deleted, so that whoever owns
// them makes all anew, which are then placed together again (pkg/plugins/gang). See docs/designs/gang.md.
//
// One reconciler, gather → decide → apply, with a pure decision (decideRestart). It follows a group only when one of its pods has died, and needs
// no memory: a member is restarted if it was made before the other one died, and what this package deletes it marks, so that such an end is no
// death itself and no restart leads to another. What each attempt cost is settled as ever.
package gangs
