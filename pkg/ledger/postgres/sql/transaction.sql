-- What every writing transaction sets for itself. Only SET LOCAL (set_config(…, true)): nothing may outlive the
-- transaction, since behind PgBouncer the next one may run in another session.

-- name: fragment settings
-- statement_timeout, lock_timeout: a hung server or a stuck client fails the batch, which is then repeated.
-- idle_in_transaction_session_timeout: if this process dies between its two round trips, its locks end.
-- enable_hashjoin, enable_mergejoin, enable_seqscan: the arrays joined below hold 1 to some 1,000 keys, which the
--   planner can't see; from about 130 it preferred to hash whole tables, and throughput halved.
-- synchronous_commit: an answer is given after the commit is durable, also where the default is 'off'; stronger
--   settings are left alone.
set_config('statement_timeout', '5s', true),
       set_config('lock_timeout', '4s', true),
       set_config('idle_in_transaction_session_timeout', '10s', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('synchronous_commit',
           CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
           true)

-- name: TransactionSettings
SELECT {settings};

-- name: BatchSettings
-- The same for a batch of commands, whose statements are prepared. Left to itself, PostgreSQL plans most of them anew for each
-- batch: it thinks that a plan for the one key it is given is cheaper than one for any. With what is switched off it is the same plan.
SELECT {settings},
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: TransactionNumber
-- The least revision of the accounts that the transaction changes; see AccountsSince in account.sql.
SELECT pg_current_xact_id()::text::bigint;

-- name: ReadSettings
-- The same for a transaction that only reads; it must not take a transaction number.
SELECT set_config('statement_timeout', '5s', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true);
