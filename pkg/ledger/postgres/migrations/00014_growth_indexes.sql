-- Where compaction and forgetting find their work. Made while others write, which no transaction can: a migration that was cut off
-- begins again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX IF EXISTS allocation_loose;
CREATE INDEX CONCURRENTLY allocation_loose ON allocation (ended_at, pod_uid) WHERE state = 'Ended' AND NOT compacted;
DROP INDEX IF EXISTS command_by_age;
CREATE INDEX CONCURRENTLY command_by_age ON command (decided_at) WHERE forget IS NOT NULL OR NOT lasting AND key ^@ 'interval:';

-- +goose Down
DROP INDEX command_by_age;
DROP INDEX allocation_loose;
