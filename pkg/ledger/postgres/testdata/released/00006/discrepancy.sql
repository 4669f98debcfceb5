-- name: fragment discrepancy
key, kind, pod_uid, account, ledger, other, found_at, resolved_at, resolution, resolved_by

-- name: DiscrepancyInsert
-- The key says what disagrees; that it was found again is no news.
INSERT INTO discrepancy (key, kind, pod_uid, account, ledger, other, found_at)
SELECT key, kind, pod_uid, account, ledger, other, found_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
     AS n (key, kind, pod_uid, account, ledger, other, found_at)
ON CONFLICT ON CONSTRAINT discrepancy_pkey DO NOTHING;

-- name: DiscrepancyAll
SELECT {discrepancy} FROM discrepancy ORDER BY found_at, key;

-- name: DiscrepancyLoad
-- Those that adjustments close, until the transaction ends.
SELECT {discrepancy} FROM discrepancy WHERE key = ANY ($1::text[]) ORDER BY key FOR UPDATE;

-- name: DiscrepancyResolve
UPDATE discrepancy d
SET resolved_at = n.resolved_at, resolution = n.resolution, resolved_by = n.resolved_by
FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[]) AS n (key, resolved_at, resolution, resolved_by)
WHERE d.key = n.key;
