-- name: DiscrepancyInsert
-- The key says what disagrees; that it was found again is no news.
INSERT INTO discrepancy (key, kind, pod_uid, account, ledger, other, found_at)
SELECT key, kind, pod_uid, account, ledger, other, found_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
     AS n (key, kind, pod_uid, account, ledger, other, found_at)
ON CONFLICT ON CONSTRAINT discrepancy_pkey DO NOTHING;

-- name: DiscrepancyAll
SELECT key, kind, pod_uid, account, ledger, other, found_at FROM discrepancy ORDER BY found_at, key;
