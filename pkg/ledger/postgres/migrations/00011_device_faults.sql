-- What node agents report of broken GPUs. Facts, not money: the controller asks for them when an attempt has failed.
-- +goose Up
CREATE TABLE device_fault (
    node        text NOT NULL,
    gpu_uuid    text NOT NULL,
    xid         bigint NOT NULL,
    -- It was raised in (since, at]: drivers hand faults out without a time, so the agent knows when it last had none.
    since       timestamptz NOT NULL,
    at          timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    -- The agent sends again what was not acknowledged: it is the same fault.
    CONSTRAINT device_fault_is_reported_once PRIMARY KEY (node, at, gpu_uuid, xid),
    CONSTRAINT device_fault_has_a_code CHECK (xid >= 1),
    CONSTRAINT device_fault_takes_time CHECK (since <= at)
);
CREATE TRIGGER device_fault_is_append_only BEFORE UPDATE OR DELETE ON device_fault
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE device_fault;
