package postgres

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// columnCodec writes the columns of set-based writes (see column) in PostgreSQL's binary format for arrays. pgx writes every
// element by way of an interface, with an allocation each, and lets the buffer grow as it goes: that was a tenth of what this
// process spent on a hold. Everything else about arrays, reading included, it leaves to pgx.
type columnCodec struct {
	pgtype.Codec
	element uint32 // OID
}

// registerColumns has a connection write columns this way.
func registerColumns(types *pgtype.Map) {
	for array, element := range map[uint32]uint32{
		pgtype.TextArrayOID: pgtype.TextOID, pgtype.Int8ArrayOID: pgtype.Int8OID, pgtype.TimestamptzArrayOID: pgtype.TimestamptzOID,
	} {
		if known, ok := types.TypeForOID(array); ok {
			types.RegisterType(&pgtype.Type{Name: known.Name, OID: array, Codec: columnCodec{Codec: known.Codec, element: element}})
		}
	}
}

func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []string:
			if c.element == pgtype.TextOID {
				return textColumn{}
			}
		case []int64:
			if c.element == pgtype.Int8OID {
				return bigintColumn{}
			}
		case []time.Time, []*time.Time:
			if c.element == pgtype.TimestamptzOID {
				return timeColumn{}
			}
		}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type (
	textColumn   struct{}
	bigintColumn struct{}
	timeColumn   struct{}
)

// appendHeader makes room for an array of count elements whose contents are bytes long together, and writes what comes before
// them: dimensions, whether there are NULLs, the type, and the one dimension's length and lower bound.
func appendHeader(buf []byte, element uint32, count, bytes int, nulls bool) []byte {
	buf = slices.Grow(buf, 20+4*count+bytes)
	hasNull := uint32(0)
	if nulls {
		hasNull = 1
	}
	buf = binary.BigEndian.AppendUint32(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, hasNull)
	buf = binary.BigEndian.AppendUint32(buf, element)
	buf = binary.BigEndian.AppendUint32(buf, uint32(count))
	return binary.BigEndian.AppendUint32(buf, 1)
}

func (textColumn) Encode(value any, buf []byte) ([]byte, error) {
	texts := value.([]string)
	bytes := 0
	for _, text := range texts {
		bytes += len(text)
	}
	buf = appendHeader(buf, pgtype.TextOID, len(texts), bytes, false)
	for _, text := range texts {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(text)))
		buf = append(buf, text...)
	}
	return buf, nil
}

func (bigintColumn) Encode(value any, buf []byte) ([]byte, error) {
	numbers := value.([]int64)
	buf = appendHeader(buf, pgtype.Int8OID, len(numbers), 8*len(numbers), false)
	for _, number := range numbers {
		buf = binary.BigEndian.AppendUint32(buf, 8)
		buf = binary.BigEndian.AppendUint64(buf, uint64(number))
	}
	return buf, nil
}

func (timeColumn) Encode(value any, buf []byte) ([]byte, error) {
	if times, ok := value.([]time.Time); ok {
		buf = appendHeader(buf, pgtype.TimestamptzOID, len(times), 8*len(times), false)
		for _, at := range times {
			buf = appendTime(buf, at)
		}
		return buf, nil
	}
	times := value.([]*time.Time)
	buf = appendHeader(buf, pgtype.TimestamptzOID, len(times), 8*len(times), slices.Contains(times, nil))
	for _, at := range times {
		if at == nil {
			buf = binary.BigEndian.AppendUint32(buf, ^uint32(0)) // −1: NULL
		} else {
			buf = appendTime(buf, *at)
		}
	}
	return buf, nil
}

// postgresEpoch is what PostgreSQL counts microseconds from.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func appendTime(buf []byte, at time.Time) []byte {
	buf = binary.BigEndian.AppendUint32(buf, 8)
	return binary.BigEndian.AppendUint64(buf, uint64(at.UnixMicro()-postgresEpoch))
}
