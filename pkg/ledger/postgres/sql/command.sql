-- name: CommandLoad
SELECT key, content_hash, verdict FROM command WHERE key = ANY ($1::text[]);

-- name: CommandInsert
-- No ON CONFLICT: if another process decided the same key meanwhile, the batch is repeated and finds its answer.
INSERT INTO command (key, content_hash, verdict, lasting, forget, decided_at)
SELECT key, content_hash, verdict, lasting, NULLIF(forget, ''), $6::timestamptz
FROM unnest($1::text[], $2::bytea[], $3::text[], $4::boolean[], $5::text[]) AS n (key, content_hash, verdict, lasting, forget);
