-- name: LotLoad
-- What is free or held of the lots of every account that the batch has locked; $1 to $3 as in AccountLock, which was before
-- it in the transaction.
{touched}
SELECT {lot} FROM lot WHERE account IN (SELECT name FROM closure) AND free + held > 0;

-- name: LotLoadNamed
-- The same where AccountLockNamed was before it.
SELECT {lot} FROM lot WHERE account = ANY ($1::text[]) AND free + held > 0;

-- name: fragment lot
key, account, amount, free, held, expired, expires_at

-- name: LotInsert
INSERT INTO lot ({lot})
SELECT {lot}
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[]) AS n ({lot});

-- name: LotUpdate
UPDATE lot l
SET free = n.free, held = n.held, expired = n.expired
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS n (key, free, held, expired)
WHERE l.key = n.key;

-- name: LotsOfAccount
SELECT {lot} FROM lot WHERE account = $1 AND free + held > 0 ORDER BY expires_at, key;

-- name: LotAll
SELECT {lot} FROM lot ORDER BY key;
