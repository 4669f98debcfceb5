-- name: DeviceLoad
-- Whoever was metered on a GPU within a window, and the pod's own hold whenever it was.
SELECT d.gpu_uuid, d.pod_uid, d.started_at, d.ended_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w (gpu_uuid, pod_uid, started_at, ended_at)
JOIN device_hold d ON d.gpu_uuid = w.gpu_uuid AND d.ended_at > w.started_at AND d.started_at < w.ended_at
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
