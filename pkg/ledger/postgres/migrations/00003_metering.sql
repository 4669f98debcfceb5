-- Metered time, and which GPUs it was metered on.
-- +goose Up

-- Start and end are columns, not a stored range: then an empty or inclusive range cannot be written at all, and an empty
-- one would pass the exclusion constraint.
CREATE TABLE metered_interval (
    pod_uid     text NOT NULL REFERENCES allocation (pod_uid),
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    source      text NOT NULL,
    charge      bigint NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (pod_uid, started_at),
    CONSTRAINT interval_is_not_empty CHECK (started_at < ended_at),
    CONSTRAINT interval_source_is_known CHECK (source IN ('Agent', 'Derived')),
    CONSTRAINT interval_charge_is_not_negative CHECK (charge >= 0),
    -- I3. Never write this table with ON CONFLICT DO NOTHING: it would swallow a different overlapping interval.
    CONSTRAINT interval_overlaps_no_other_of_its_pod EXCLUDE USING gist (
        pod_uid WITH =, tstzrange(started_at, ended_at, '[)') WITH &&)
);

-- From the first to the last metered moment of a pod on a GPU. Two pods may overlap here: that is found and kept as a
-- discrepancy, since neither charge may be lost (I3).
CREATE TABLE device_hold (
    gpu_uuid   text NOT NULL,
    pod_uid    text NOT NULL REFERENCES allocation (pod_uid),
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    PRIMARY KEY (gpu_uuid, pod_uid),
    CONSTRAINT device_hold_is_not_empty CHECK (started_at < ended_at)
);
CREATE INDEX device_hold_by_end ON device_hold (gpu_uuid, ended_at);
CREATE INDEX device_hold_by_pod ON device_hold (pod_uid);

-- +goose Down
DROP TABLE device_hold;
DROP TABLE metered_interval;
