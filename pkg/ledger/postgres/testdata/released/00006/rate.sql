-- name: RateLoad
-- The newest version of each class.
SELECT DISTINCT ON (class) class, version, rate
FROM rate
WHERE class = ANY ($1::text[])
ORDER BY class, version DESC;

-- name: RateInsert
-- Two processes may both add the next version; the second one's batch fails on the key and is repeated.
INSERT INTO rate (class, version, rate, set_at)
SELECT class, version, rate, $4::timestamptz
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, version, rate);
