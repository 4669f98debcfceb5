-- Who was stopped for whom: what was believed before, what was found afterwards. Facts, not money.
-- +goose Up
CREATE TABLE preemption (
    key                 text NOT NULL,
    decided_at          timestamptz NOT NULL,
    leader              text NOT NULL,
    leader_epoch        bigint NOT NULL,
    reason              text NOT NULL,
    node                text NOT NULL,
    preemptor_uid       text NOT NULL,
    preemptor_namespace text NOT NULL,
    preemptor_name      text NOT NULL,
    preemptor_workload  text NOT NULL,
    preemptor_account   text NOT NULL,
    preemptor_gpus      bigint NOT NULL,
    preemptor_priority  bigint NOT NULL,
    victim_uid          text NOT NULL,
    victim_namespace    text NOT NULL,
    victim_name         text NOT NULL,
    victim_workload     text NOT NULL,
    victim_account      text NOT NULL,
    victim_gpus         bigint NOT NULL,
    victim_priority     bigint NOT NULL,
    lost_since          timestamptz, -- NULL: it had not started
    restart_seconds     bigint NOT NULL,
    lost_gpu_seconds    bigint NOT NULL,
    CONSTRAINT preemption_is_recorded_once PRIMARY KEY (key, victim_uid),
    CONSTRAINT preemption_reason_is_known CHECK (reason IN ('Priority', 'Reclaim')),
    CONSTRAINT preemption_stops_another CHECK (preemptor_uid <> victim_uid),
    CONSTRAINT preemption_loses_nothing_negative CHECK (victim_gpus >= 0 AND restart_seconds >= 0 AND lost_gpu_seconds >= 0)
);
CREATE INDEX preemption_of_victim ON preemption (victim_uid);
CREATE INDEX preemption_by_time ON preemption (decided_at);
CREATE TRIGGER preemption_is_append_only BEFORE UPDATE OR DELETE ON preemption
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE preemption_outcome (
    key              text NOT NULL,
    victim_uid       text NOT NULL,
    preempted        boolean NOT NULL,
    stopped_at       timestamptz NOT NULL,
    checkpointed_at  timestamptz, -- NULL: none was reported
    lost_gpu_seconds bigint NOT NULL,
    CONSTRAINT preemption_outcome_is_found_once PRIMARY KEY (key, victim_uid),
    CONSTRAINT preemption_outcome_names_a_preemption FOREIGN KEY (key, victim_uid) REFERENCES preemption,
    CONSTRAINT preemption_finds_nothing_negative CHECK (lost_gpu_seconds >= 0 AND (preempted OR lost_gpu_seconds = 0))
);
CREATE TRIGGER preemption_outcome_is_append_only BEFORE UPDATE OR DELETE ON preemption_outcome
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE preemption_outcome;
DROP TABLE preemption;
