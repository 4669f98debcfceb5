-- name: fragment reservation
uid, account, payer, policy_version, workload_kind, workload_namespace, workload_name, class, rate_version, rate,
       max_gpus, gpu_seconds, amount, takes, charged, state, reason, created_at, closed_at

-- name: ReservationLoad
-- Those named ($1) and those of the pods named ($2). UNION, not OR: each arm keeps its index.
SELECT {reservation}
FROM reservation
WHERE uid IN (SELECT unnest($1::text[])
              UNION SELECT reservation FROM allocation WHERE pod_uid = ANY ($2::text[]));

-- name: ReservationInsert
INSERT INTO reservation ({reservation})
SELECT {reservation}
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
            $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bigint[], $16::text[], $17::text[],
            $18::timestamptz[], $19::timestamptz[])
     AS n ({reservation});

-- name: ReservationUpdate
UPDATE reservation r
SET gpu_seconds = n.gpu_seconds, amount = n.amount, takes = n.takes, charged = n.charged, state = n.state, reason = n.reason,
    closed_at = n.closed_at
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[])
     AS n (uid, gpu_seconds, amount, takes, charged, state, reason, closed_at)
WHERE r.uid = n.uid;

-- name: ReservationGet
SELECT {reservation}
FROM reservation
WHERE uid = $1;

-- name: ReservationsOpen
SELECT {reservation}
FROM reservation
WHERE state IN ('Held', 'Active')
ORDER BY created_at, uid;
