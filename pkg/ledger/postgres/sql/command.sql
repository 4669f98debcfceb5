-- name: CommandLoad
SELECT key, content_hash, verdict FROM command WHERE key = ANY ($1::text[]);

-- name: CommandInsert
-- No ON CONFLICT: if another process decided the same key meanwhile, the batch is repeated and finds its answer.
INSERT INTO command (key, content_hash, verdict, lasting, forget, decided_at)
SELECT unnest($1::text[]), unnest($2::bytea[]), unnest($3::text[]), unnest($4::boolean[]), NULLIF(unnest($5::text[]), ''), $6::timestamptz;
