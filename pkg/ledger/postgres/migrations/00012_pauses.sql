-- A hold may be given back and set aside again while its workload waits to be admitted (PauseHold, EnsureHold): it may come to
-- nothing, and cost something else at the next admission. What is closed, and what pods run under, stays as it is.
-- +goose Up
ALTER TABLE reservation
    DROP CONSTRAINT reservation_amount_is_positive,
    ADD CONSTRAINT reservation_amount_is_not_negative CHECK (amount >= 0 AND max_gpus > 0);
DROP TRIGGER reservation_terms_never_change ON reservation;
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.payer, old.created_at) IS DISTINCT FROM (new.uid, new.account, new.payer, new.created_at)
        OR old.closed_at IS NOT NULL
            AND (old.class, old.rate_version, old.rate, old.max_gpus, old.gpu_seconds)
                IS DISTINCT FROM (new.class, new.rate_version, new.rate, new.max_gpus, new.gpu_seconds))
    EXECUTE FUNCTION refuse_change();
-- +goose StatementBegin
CREATE FUNCTION refuse_other_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM allocation a JOIN reservation r ON r.uid = a.reservation
               WHERE r.uid = new.uid AND a.state NOT IN ('Ended', 'Released')
                 AND (a.class, a.rate_version, a.rate) IS DISTINCT FROM (r.class, r.rate_version, r.rate))
        OR NOT EXISTS (SELECT FROM reservation r JOIN rate p ON (p.class, p.version, p.rate) = (r.class, r.rate_version, r.rate)
                       WHERE r.uid = new.uid) THEN
        RAISE EXCEPTION 'reservation % would have a price that its pods do not have, or that does not exist', new.uid
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
-- Deferred: the pods of before may end, and others begin, in the same transaction.
CREATE CONSTRAINT TRIGGER reservation_price_is_its_pods AFTER UPDATE ON reservation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((old.class, old.rate_version, old.rate) IS DISTINCT FROM (new.class, new.rate_version, new.rate))
    EXECUTE FUNCTION refuse_other_price();

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM reservation WHERE amount = 0) THEN
        RAISE EXCEPTION 'a reservation sets nothing aside, which an earlier version cannot read: end its workload first';
    END IF;
END
$$;
-- +goose StatementEnd
DROP TRIGGER reservation_price_is_its_pods ON reservation;
DROP FUNCTION refuse_other_price();
DROP TRIGGER reservation_terms_never_change ON reservation;
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.payer, old.class, old.rate_version, old.rate, old.max_gpus, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.payer, new.class, new.rate_version, new.rate, new.max_gpus, new.created_at)
        OR new.gpu_seconds < old.gpu_seconds)
    EXECUTE FUNCTION refuse_change();
ALTER TABLE reservation
    DROP CONSTRAINT reservation_amount_is_not_negative,
    ADD CONSTRAINT reservation_amount_is_positive CHECK (amount > 0 AND max_gpus > 0);
