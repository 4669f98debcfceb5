-- name: DeviceLoad
-- The pod's own hold of a GPU, and whoever else was metered on it at any time between that and the window. greatest and
-- least leave a hold that is not there yet out.
SELECT d.gpu_uuid, d.pod_uid, d.started_at, d.ended_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w (gpu_uuid, pod_uid, started_at, ended_at)
LEFT JOIN device_hold o ON o.gpu_uuid = w.gpu_uuid AND o.pod_uid = w.pod_uid
JOIN device_hold d ON d.gpu_uuid = w.gpu_uuid AND d.ended_at > least(w.started_at, o.started_at) AND d.started_at < greatest(w.ended_at, o.ended_at)
UNION
SELECT d.gpu_uuid, d.pod_uid, d.started_at, d.ended_at
FROM unnest($1::text[], $2::text[]) AS w (gpu_uuid, pod_uid)
JOIN device_hold d ON d.gpu_uuid = w.gpu_uuid AND d.pod_uid = w.pod_uid;

-- name: DeviceInsert
INSERT INTO device_hold (gpu_uuid, pod_uid, started_at, ended_at)
SELECT gpu_uuid, pod_uid, started_at, ended_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS n (gpu_uuid, pod_uid, started_at, ended_at);

-- name: DeviceUpdate
UPDATE device_hold d
SET started_at = n.started_at, ended_at = n.ended_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS n (gpu_uuid, pod_uid, started_at, ended_at)
WHERE d.gpu_uuid = n.gpu_uuid AND d.pod_uid = n.pod_uid;
