-- name: EntryInsert
-- In the order in which they were decided, which their ids then follow.
INSERT INTO entry (kind, event_key, debit, credit, amount, reservation, allocation, occurred_at, recorded_at, reason, actor)
SELECT kind, event_key, debit, credit, amount, NULLIF(reservation, ''), NULLIF(allocation, ''), occurred_at, recorded_at,
       reason, actor
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[],
            $9::timestamptz[], $10::text[], $11::text[])
     WITH ORDINALITY
     AS n (kind, event_key, debit, credit, amount, reservation, allocation, occurred_at, recorded_at, reason, actor, position)
ORDER BY position;
