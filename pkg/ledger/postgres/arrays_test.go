package postgres

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Columns are written byte for byte as pgx writes them.
func TestColumnsAreWrittenAsPgxDoes(t *testing.T) {
	t.Parallel()
	plain, ours := pgtype.NewMap(), pgtype.NewMap()
	registerColumns(ours)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	moment := func() time.Time {
		zone := time.FixedZone("", random.IntN(20)*3_600-36_000)
		return time.UnixMicro(random.Int64N(8_000_000_000_000_000) - 1_000_000_000_000_000).In(zone)
	}
	for range 300 {
		count := random.IntN(20)
		texts, numbers, times, nullable := make([]string, count), make([]int64, count), make([]time.Time, count), make([]*time.Time, count)
		for i := range count {
			texts[i] = strings.Repeat("ü\"\\{},", random.IntN(3)) + []string{"", "NULL", "a"}[random.IntN(3)]
			numbers[i] = []int64{0, -1, math.MaxInt64, math.MinInt64, random.Int64()}[random.IntN(5)]
			times[i] = moment()
			if random.IntN(2) == 0 {
				at := moment()
				nullable[i] = &at
			}
		}
		for _, column := range []struct {
			oid   uint32
			value any
		}{
			{pgtype.TextArrayOID, texts}, {pgtype.Int8ArrayOID, numbers}, {pgtype.TimestamptzArrayOID, times}, {pgtype.TimestamptzArrayOID, nullable},
			{pgtype.VarcharArrayOID, texts}, {pgtype.ByteaArrayOID, [][]byte{nil, {1}}}, {pgtype.BoolArrayOID, []bool{true}},
		} {
			for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
				before := []byte("what was written before")
				want, wantErr := plain.Encode(column.oid, format, column.value, bytes.Clone(before))
				got, err := ours.Encode(column.oid, format, column.value, bytes.Clone(before))
				if wantErr != nil || err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%T %v in format %d: %x (%v), want %x (%v)", column.value, column.value, format, got, err, want, wantErr)
				}
			}
		}
	}
}
