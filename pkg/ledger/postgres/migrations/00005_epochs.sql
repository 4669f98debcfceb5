-- Who is in charge: of scheduling under a name, and of metering a node. Every write of theirs carries the epoch (I7).
-- +goose Up

CREATE TABLE leadership (
    name        text PRIMARY KEY,
    epoch       bigint NOT NULL,
    holder      text NOT NULL,
    acquired_at timestamptz NOT NULL
);
CREATE TRIGGER leadership_epoch_only_grows BEFORE UPDATE ON leadership FOR EACH ROW
    WHEN (new.epoch <= old.epoch) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER leadership_is_never_forgotten BEFORE DELETE ON leadership
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE node_agent (
    node          text PRIMARY KEY,
    epoch         bigint NOT NULL,
    holder        text NOT NULL,
    registered_at timestamptz NOT NULL
);
CREATE TRIGGER node_agent_epoch_only_grows BEFORE UPDATE ON node_agent FOR EACH ROW
    WHEN (new.epoch <= old.epoch) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER node_agent_is_never_forgotten BEFORE DELETE ON node_agent
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE node_agent;
DROP TABLE leadership;
