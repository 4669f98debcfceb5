-- The chains of ledger.ChainHead. Within an account the order of (recorded_at, id) is that of commits: whoever writes an
-- entry holds the locks of all its accounts from before the entry has an id until after its commit, and recorded_at never
-- goes back within an account. So what one snapshot shows of an account is a beginning of its chain, without a gap: an entry
-- that is visible was written after the ones before it had been committed. Nothing here waits for a writer or makes one wait.

-- name: SealTurn
-- One sealer at a time, until its transaction ends. The number is nobody else's: "gpubseal" as bytes.
SELECT pg_try_advisory_xact_lock(x'677075627365616c'::bit(64)::bigint);

-- name: fragment head
COALESCE(s.number, 0), COALESCE(s.through, 0), COALESCE(s.last_entry, 0), s.last_recorded_at, s.hash

-- name: fragment lastseal
LATERAL (SELECT number, through, last_entry, last_recorded_at, hash FROM seal
                   WHERE account = a.name ORDER BY number DESC LIMIT 1) s

-- name: SealWork
-- The accounts that changed since the sealer was here, with the ends of their chains. As in AccountsSince, what is at or above
-- the lowest running transaction comes later; an entry changes its accounts, so none is forgotten.
SELECT a.name, {head}, a.revision
FROM (
    SELECT c.name, c.revision
    FROM account c JOIN seal_progress p ON (c.revision, c.name) > (p.revision, p.account)
    WHERE c.revision < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    ORDER BY c.revision, c.name LIMIT $1
) a
LEFT JOIN {lastseal} ON true
ORDER BY a.revision, a.name;

-- name: fragment chained
id, kind, event_key, debit, credit, amount, COALESCE(spender, ''), COALESCE(reservation, ''), COALESCE(allocation, ''),
       COALESCE(corrects, 0), draws, occurred_at, recorded_at, reason, actor

-- name: SealEntries
-- The next entries of each account after the end of its chain ($2, $3), $4 of them in all. Each arm walks its own index; an
-- entry is in one of them, since they exclude each other.
SELECT n.position, e.*
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) WITH ORDINALITY AS n (account, after_time, after_id, position)
CROSS JOIN LATERAL (
    SELECT {chained}
    FROM (
        (SELECT * FROM entry
         WHERE debit = n.account AND debit NOT LIKE 'system:%' AND (recorded_at, id) > (n.after_time, n.after_id)
         ORDER BY recorded_at, id LIMIT $4)
        UNION ALL
        (SELECT * FROM entry
         WHERE credit = n.account AND credit NOT LIKE 'system:%' AND (recorded_at, id) > (n.after_time, n.after_id)
         ORDER BY recorded_at, id LIMIT $4)
        UNION ALL
        (SELECT * FROM entry
         WHERE spender = n.account AND spender <> debit AND spender <> credit AND (recorded_at, id) > (n.after_time, n.after_id)
         ORDER BY recorded_at, id LIMIT $4)
    ) AS sides
    ORDER BY recorded_at, id LIMIT $4
) AS e
ORDER BY n.position, e.recorded_at, e.id LIMIT $4;

-- name: SealInsert
INSERT INTO seal (account, number, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, hash, sealed_at)
SELECT account, number, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, hash, sealed_at
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::timestamptz[], $10::bytea[], $11::timestamptz[])
     AS n (account, number, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, hash, sealed_at);

-- name: SealProgress
UPDATE seal_progress SET revision = $1, account = $2;

-- name: SealOrderlyFrom
SELECT orderly_from FROM seal_progress;

-- name: SealSettings
-- For reading whole chains: always by index, account after account.
SELECT set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true);

-- name: SealPage
-- The next seals after ($1, $2), account by account.
SELECT account, number, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, hash, sealed_at
FROM seal
WHERE (account, number) > ($1, $2)
ORDER BY account, number LIMIT $3;

-- name: SealRanges
-- The entries of each account after ($2, $3) up to and including ($4, $5).
SELECT n.position, e.*
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::timestamptz[], $5::bigint[])
     WITH ORDINALITY AS n (account, after_time, after_id, to_time, to_id, position)
CROSS JOIN LATERAL (
    SELECT {chained}
    FROM (
        SELECT * FROM entry
        WHERE debit = n.account AND debit NOT LIKE 'system:%'
          AND (recorded_at, id) > (n.after_time, n.after_id) AND (recorded_at, id) <= (n.to_time, n.to_id)
        UNION ALL
        SELECT * FROM entry
        WHERE credit = n.account AND credit NOT LIKE 'system:%'
          AND (recorded_at, id) > (n.after_time, n.after_id) AND (recorded_at, id) <= (n.to_time, n.to_id)
        UNION ALL
        SELECT * FROM entry
        WHERE spender = n.account AND spender <> debit AND spender <> credit
          AND (recorded_at, id) > (n.after_time, n.after_id) AND (recorded_at, id) <= (n.to_time, n.to_id)
    ) AS sides
) AS e
ORDER BY n.position, e.recorded_at, e.id;

-- name: SealTails
-- What is not sealed yet, account by account in the chain's order, with the end of the account's chain.
SELECT a.name, COALESCE(s.last_entry, 0), e.id, e.recorded_at
FROM account a
LEFT JOIN {lastseal} ON true
CROSS JOIN LATERAL (
    SELECT id, recorded_at FROM entry
    WHERE debit = a.name AND debit NOT LIKE 'system:%'
      AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
    UNION ALL
    SELECT id, recorded_at FROM entry
    WHERE credit = a.name AND credit NOT LIKE 'system:%'
      AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
    UNION ALL
    SELECT id, recorded_at FROM entry
    WHERE spender = a.name AND spender <> debit AND spender <> credit
      AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
) AS e
ORDER BY a.name, e.recorded_at, e.id;

-- name: SealHeads
-- The ends of all chains.
SELECT a.name, {head}
FROM (SELECT name FROM account UNION SELECT account FROM seal) a
JOIN {lastseal} ON true
ORDER BY a.name;

-- name: SealStrangers
-- Seals of accounts that do not exist. An account with entries cannot be removed.
SELECT DISTINCT s.account FROM seal s WHERE NOT EXISTS (SELECT FROM account a WHERE a.name = s.account) ORDER BY 1;

-- name: SealWhereabouts
-- What an entry that is missing from an account says now; no row where it was deleted.
SELECT {chained} FROM entry WHERE id = $1;

-- name: SealWaiting
-- Entries that the sealer has yet to come to, at most $1.
SELECT count(*) FROM (
    SELECT FROM account c JOIN seal_progress p ON (c.revision, c.name) > (p.revision, p.account)
    JOIN LATERAL (SELECT c.name) a (name) ON true
    LEFT JOIN {lastseal} ON true
    CROSS JOIN LATERAL (
        SELECT id FROM entry
        WHERE debit = c.name AND debit NOT LIKE 'system:%'
          AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
        UNION ALL
        SELECT id FROM entry
        WHERE credit = c.name AND credit NOT LIKE 'system:%'
          AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
        UNION ALL
        SELECT id FROM entry
        WHERE spender = c.name AND spender <> debit AND spender <> credit
          AND (recorded_at, id) > (COALESCE(s.last_recorded_at, '-infinity'), COALESCE(s.last_entry, 0))
    ) AS e
    LIMIT $1
) AS waiting;
