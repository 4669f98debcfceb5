-- name: fragment allocation
pod_uid, pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus, gpu_uuids,
       leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, refunded, refunded_for

-- name: AllocationLoad
SELECT {allocation} FROM allocation WHERE pod_uid = ANY ($1::text[]);

-- name: AllocationLoadOpen
-- The open ones under reservations. One may be read by AllocationLoad too.
SELECT {allocation} FROM allocation WHERE reservation = ANY ($1::text[]) AND ended_at IS NULL AND state NOT IN ('Ended', 'Released');

-- name: AllocationInsert
-- A list of GPUs travels as one text, separated by the unit separator, since arrays of arrays must be rectangular.
INSERT INTO allocation (pod_uid, pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus,
                        gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, refunded, refunded_for)
SELECT pod_uid, pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus,
       string_to_array(gpu_uuids, chr(31)), leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged,
       refunded, refunded_for
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::timestamptz[], $15::timestamptz[],
            $16::timestamptz[], $17::timestamptz[], $18::bigint[], $19::bigint[], $20::text[])
     AS n (pod_uid, pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus,
           gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, refunded, refunded_for);

-- name: AllocationUpdate
UPDATE allocation a
SET pod_namespace = n.pod_namespace, pod_name = n.pod_name, node = n.node, class = n.class,
    rate_version = n.rate_version, rate = n.rate, gpus = n.gpus, gpu_uuids = string_to_array(n.gpu_uuids, chr(31)),
    leader_epoch = n.leader_epoch, state = n.state, intended_at = n.intended_at, started_at = n.started_at,
    ended_at = n.ended_at, last_seen = n.last_seen, charged = n.charged, refunded = n.refunded, refunded_for = n.refunded_for
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::text[], $12::timestamptz[], $13::timestamptz[],
            $14::timestamptz[], $15::timestamptz[], $16::bigint[], $17::bigint[], $18::text[])
     AS n (pod_uid, pod_namespace, pod_name, node, class, rate_version, rate, gpus,
           gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, refunded, refunded_for)
WHERE a.pod_uid = n.pod_uid;

-- name: AllocationGet
SELECT {allocation}
FROM allocation
WHERE pod_uid = $1;

-- name: AllocationsOpen
SELECT {allocation}
FROM allocation
WHERE ended_at IS NULL AND state NOT IN ('Ended', 'Released')
ORDER BY intended_at, pod_uid;

-- name: AllocationsOfReservation
SELECT {allocation}
FROM allocation
WHERE reservation = $1
ORDER BY intended_at, pod_uid;

-- name: AllocationsMetered
-- Open ones with what their nodes' agents have reported.
SELECT {allocation},
       (SELECT i.ended_at FROM metered_interval i
        WHERE i.pod_uid = a.pod_uid AND i.source = 'Agent' ORDER BY i.started_at DESC LIMIT 1),
       ARRAY(SELECT d.gpu_uuid FROM device_hold d WHERE d.pod_uid = a.pod_uid ORDER BY d.gpu_uuid COLLATE "C")
FROM allocation a
WHERE ended_at IS NULL AND state NOT IN ('Ended', 'Released')
ORDER BY intended_at, pod_uid;

-- name: UsageAverages
-- For each account's own pods and class, and each half-life of $2 (seconds), the exponential average at $1 of the GPUs held: an
-- allocation of n GPUs from s to e adds n × (2^(-($1-e)/h) - 2^(-($1-s)/h)). One that is open is held until $1, from its intent if
-- it is not known to have started. What ended 40 half-lives ago adds 10^-12, and is left out; exponents stop at -1000, since a double
-- that underflows is an error here.
SELECT a.account, a.class, h.seconds,
       sum(a.gpus * (power(2::float8, greatest(-extract(epoch FROM $1 - a.held_until)::float8 / h.seconds, -1000))
                   - power(2::float8, greatest(-extract(epoch FROM $1 - a.held_from)::float8 / h.seconds, -1000))))::float8
FROM (SELECT account, class, gpus, coalesce(started_at, intended_at) AS held_from, least(coalesce(ended_at, $1), $1) AS held_until
      FROM allocation
      WHERE state NOT IN ('Ended', 'Released') OR (state = 'Ended' AND started_at IS NOT NULL AND ended_at IS NOT NULL)) a
     CROSS JOIN unnest($2::float8[]) AS h (seconds)
WHERE a.held_from < a.held_until AND a.held_until > $1 - make_interval(secs => 40 * h.seconds)
GROUP BY a.account, a.class, h.seconds
ORDER BY a.account COLLATE "C", a.class COLLATE "C", h.seconds;
