// Package intake receives measured intervals from node agents over HTTPS and has the ledger charge them.
//
// A request is believed because of its token: the API server's TokenReview must confirm a token of audience
// intakeapi.Audience that belongs to the node agent's service account and was issued to a pod on the node that the
// request speaks for. Everything else is refused, and counted by reason. Whether the pod really holds GPUs of that
// node, whether the agent's epoch is current (I7) and whether the time is already charged (I3) is the ledger's to
// decide, in the transaction that charges.
//
// The server keeps nothing: an interval is acknowledged after its charge is durable, so killing the process at any
// point makes the agent send again, and the ledger recognises the repeat (I6). It runs on every replica.
package intake
