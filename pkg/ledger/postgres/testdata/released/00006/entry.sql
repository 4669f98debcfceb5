-- name: EntryInsert
-- In the order in which they were decided, which their ids then follow.
INSERT INTO entry (kind, event_key, debit, credit, spender, amount, reservation, allocation, corrects, draws, occurred_at, recorded_at,
                   reason, actor)
SELECT kind, event_key, debit, credit, NULLIF(spender, ''), amount, NULLIF(reservation, ''), NULLIF(allocation, ''), NULLIF(corrects, 0),
       draws, occurred_at, recorded_at, reason, actor
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::text[],
            $11::timestamptz[], $12::timestamptz[], $13::text[], $14::text[])
     WITH ORDINALITY
     AS n (kind, event_key, debit, credit, spender, amount, reservation, allocation, corrects, draws, occurred_at, recorded_at,
           reason, actor, position)
ORDER BY position;

-- name: EntryLoad
SELECT id, kind, event_key, debit, credit, amount FROM entry WHERE id = ANY ($1::bigint[]);
