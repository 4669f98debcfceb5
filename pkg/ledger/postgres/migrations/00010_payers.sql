-- Whoever pays for a reservation cannot be removed, whosever workload it is: its usage may still have to be charged.
-- +goose Up
CREATE INDEX reservation_by_payer ON reservation (payer) WHERE payer <> account;
-- +goose StatementBegin
CREATE FUNCTION refuse_removal_of_payer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reservation WHERE payer = old.name AND payer <> account) THEN
        RAISE EXCEPTION 'account % pays for reservations', old.name
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN old;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER account_that_pays_stays BEFORE DELETE ON account
    FOR EACH ROW EXECUTE FUNCTION refuse_removal_of_payer();

-- +goose Down
DROP TRIGGER account_that_pays_stays ON account;
DROP FUNCTION refuse_removal_of_payer();
DROP INDEX reservation_by_payer;
