-- name: EntryInsert
-- In the order in which they were decided, which their ids then follow: arrays are unnested side by side from first to last.
INSERT INTO entry (kind, event_key, debit, credit, spender, amount, reservation, allocation, corrects, draws, occurred_at, recorded_at,
                   reason, actor)
SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), NULLIF(unnest($5::text[]), ''), unnest($6::bigint[]),
       NULLIF(unnest($7::text[]), ''), NULLIF(unnest($8::text[]), ''), NULLIF(unnest($9::bigint[]), 0), unnest($10::text[]),
       unnest($11::timestamptz[]), unnest($12::timestamptz[]), unnest($13::text[]), unnest($14::text[]);

-- name: EntryLoad
SELECT id, kind, event_key, debit, credit, amount FROM entry WHERE id = ANY ($1::bigint[]);
