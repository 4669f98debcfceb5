-- name: ReservationLoad
-- Those named ($1) and those of the pods named ($2). UNION, not OR: each arm keeps its index.
SELECT uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate, max_gpus, gpu_seconds,
       amount, charged, state, reason, created_at, closed_at
FROM reservation
WHERE uid IN (SELECT unnest($1::text[])
              UNION SELECT reservation FROM allocation WHERE pod_uid = ANY ($2::text[]));

-- name: ReservationInsert
INSERT INTO reservation (uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate,
                         max_gpus, gpu_seconds, amount, charged, state, reason, created_at, closed_at)
SELECT uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate,
       max_gpus, gpu_seconds, amount, charged, state, reason, created_at, closed_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::timestamptz[],
            $16::timestamptz[])
     AS n (uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate,
           max_gpus, gpu_seconds, amount, charged, state, reason, created_at, closed_at);

-- name: ReservationUpdate
UPDATE reservation r
SET charged = n.charged, state = n.state, reason = n.reason, closed_at = n.closed_at
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[])
     AS n (uid, charged, state, reason, closed_at)
WHERE r.uid = n.uid;

-- name: ReservationGet
SELECT uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate, max_gpus, gpu_seconds,
       amount, charged, state, reason, created_at, closed_at
FROM reservation
WHERE uid = $1;

-- name: ReservationsOpen
SELECT uid, account, workload_kind, workload_namespace, workload_name, class, rate_version, rate, max_gpus, gpu_seconds,
       amount, charged, state, reason, created_at, closed_at
FROM reservation
WHERE state IN ('Held', 'Active')
ORDER BY created_at, uid;
