package ledger

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// ContentHash is the hash of what a command says, without its key: two commands with the same key must have the same
// hash (I6). Times count as the ledger keeps them and lists of GPUs as sets. The epoch of an interval's sender is not
// part of what was measured: a restarted agent sends the same interval under a new epoch (L26).
func ContentHash(command Command) [32]byte {
	kind, content := canonical(command)
	text, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("ledger: command %T has content that JSON cannot carry: %v", command, err))
	}
	return sha256.Sum256(append([]byte(kind+"\n"), text...))
}

// canonical returns the command's kind and its content with everything cleared that does not count.
func canonical(command Command) (kind string, content any) {
	switch c := command.(type) {
	case SetAccount:
		c.Key = ""
		return "SetAccount", c
	case RemoveAccount:
		c.Key = ""
		return "RemoveAccount", c
	case SetRate:
		c.Key = ""
		return "SetRate", c
	case PostGrant:
		c.Key, c.ExpiresAt = "", Instant(c.ExpiresAt)
		return "PostGrant", c
	case Adjust:
		c.Key = ""
		return "Adjust", c
	case Transfer:
		c.Key = ""
		return "Transfer", c
	case FreezeAccount:
		c.Key = ""
		return "FreezeAccount", c
	case UnfreezeAccount:
		c.Key = ""
		return "UnfreezeAccount", c
	case PostDue:
		c.Key = ""
		return "PostDue", c
	case RenewHold:
		c.Key = ""
		return "RenewHold", c
	case EnsureHold:
		c.Key, c.Hold.Key = "", ""
		return "EnsureHold", c
	case PauseHold:
		c.Key = ""
		return "PauseHold", c
	case PlaceHold:
		c.Key = ""
		return "PlaceHold", c
	case CloseReservation:
		c.Key = ""
		return "CloseReservation", c
	case Allocate:
		return "Allocate", c.withoutKeys()
	case AllocateGang:
		members := make([]Allocate, len(c.Members))
		for i, member := range c.Members {
			members[i] = member.withoutKeys()
		}
		return "AllocateGang", members
	case ConfirmBound:
		c.Key = ""
		return "ConfirmBound", c
	case ReleaseAllocation:
		c.Key = ""
		return "ReleaseAllocation", c
	case RecordStart:
		c.Key, c.StartedAt = "", Instant(c.StartedAt)
		return "RecordStart", c
	case RecordInterval:
		c.Key, c.OwnerEpoch = "", 0
		c.PodStartedAt, c.Start, c.End = Instant(c.PodStartedAt), Instant(c.Start), Instant(c.End)
		c.GPUUUIDs = sortedSet(c.GPUUUIDs)
		return "RecordInterval", c
	case EndAllocation:
		c.Key, c.StartedAt, c.EndedAt = "", Instant(c.StartedAt), Instant(c.EndedAt)
		return "EndAllocation", c
	case Refund:
		c.Key, c.CheckpointedAt = "", Instant(c.CheckpointedAt)
		return "Refund", c
	case MarkSuspect:
		c.Key, c.LastSeen = "", Instant(c.LastSeen)
		return "MarkSuspect", c
	case ClearSuspect:
		c.Key = ""
		return "ClearSuspect", c
	}
	panic(fmt.Sprintf("ledger: unknown command %T", command))
}

func (c Allocate) withoutKeys() Allocate {
	c.Key = ""
	if c.Hold != nil {
		hold := *c.Hold
		hold.Key = ""
		c.Hold = &hold
	}
	return c
}

func sortedSet(texts []string) []string {
	sorted := slices.Clone(texts)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
