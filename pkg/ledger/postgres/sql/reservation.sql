-- name: fragment reservation
uid, account, payer, policy_version, workload_kind, workload_namespace, workload_name, class, rate_version, rate,
       max_gpus, gpu_seconds, amount, takes, charged, state, reason, created_at, closed_at

-- name: ReservationLoad
SELECT {reservation} FROM reservation WHERE uid = ANY ($1::text[]);

-- name: ReservationLoadOfPods
-- A reservation may be read by ReservationLoad too.
SELECT {reservation} FROM reservation WHERE uid IN (SELECT reservation FROM allocation WHERE pod_uid = ANY ($1::text[]));

-- name: ReservationHold
-- ReservationInsert for what most new ones are: just held, and nothing else. Each array less is time; and so is each one that is
-- unnested in FROM, which keeps its rows in a store of its own first.
INSERT INTO reservation ({reservation})
SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]), unnest($5::text[]), unnest($6::text[]),
       unnest($7::text[]), unnest($8::text[]), unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]),
       unnest($12::bigint[]), unnest($13::bigint[]), unnest($14::text[]), 0, 'Held', '', $15::timestamptz, NULL::timestamptz;

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

-- name: ReservationReprice
-- ReservationUpdate where the price changes too: only the controller's role may.
UPDATE reservation r
SET gpu_seconds = n.gpu_seconds, amount = n.amount, takes = n.takes, charged = n.charged, state = n.state, reason = n.reason,
    closed_at = n.closed_at, class = n.class, rate_version = n.rate_version, rate = n.rate, max_gpus = n.max_gpus
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[],
            $9::text[], $10::bigint[], $11::bigint[], $12::bigint[])
     AS n (uid, gpu_seconds, amount, takes, charged, state, reason, closed_at, class, rate_version, rate, max_gpus)
WHERE r.uid = n.uid;

-- name: ReservationGet
SELECT {reservation}
FROM reservation
WHERE uid = $1;

-- name: ReservationsOpen
SELECT {reservation}
FROM reservation
WHERE closed_at IS NULL
ORDER BY created_at, uid;
