-- What Migrate asks and does about roles, as the owner of the tables. The rights themselves are in ../roles, one file per role.

-- name: RolesLock
-- One at a time, also where two programs migrate; until the transaction ends. The number is only unlike others.
SELECT pg_advisory_xact_lock(4775069413);

-- name: RolesPresent
SELECT rolname::text FROM pg_roles WHERE rolname = ANY ($1::text[]);

-- name: RoleRenewal
-- Takes away what a role was granted on the ledger's tables, and lets it in again; returns statements.
SELECT format('REVOKE ALL ON %s FROM %I', c.oid::regclass, $1::text)
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE')
UNION ALL
SELECT format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), $1::text)
UNION ALL
SELECT format('GRANT SELECT ON ledger_schema, goose_db_version TO %I', $1::text)
UNION ALL
SELECT format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), $1::text)
WHERE pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE');

-- name: PublicWithdrawal
-- Nobody but the owner makes tables here, not even temporary ones, which a name would find first; returns statements. What
-- belongs to somebody else is his to close.
SELECT format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database())
WHERE pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE')
UNION ALL
SELECT format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', nspname)
FROM pg_namespace WHERE nspname = current_schema() AND pg_has_role(nspowner, 'USAGE');

-- name: GuardsAlone
-- What looks at tables from within a trigger runs with the rights of whoever fired it, who must not be able to put a table of
-- his own before the ledger's; returns statements.
SELECT format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', oid::regprocedure, current_schema())
FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace AND prorettype = 'trigger'::regtype AND proname <> 'refuse_change'
  AND pg_has_role(proowner, 'USAGE')
  AND NOT COALESCE(proconfig::text LIKE '%search_path=%', false)
ORDER BY 1;

-- name: SchemaVersionSet
INSERT INTO ledger_schema (version, oldest_program) VALUES ($1, $2)
ON CONFLICT ON CONSTRAINT ledger_schema_pkey DO UPDATE SET version = excluded.version, oldest_program = excluded.oldest_program;

-- name: Process
SELECT pg_backend_pid();

-- name: MigrationVersion
SELECT COALESCE(max(version_id), 0)::bigint FROM goose_db_version WHERE is_applied;

-- name: SchemaVersion
-- What a new connection asks first; which process answers is for prepare.go. A migration that was taken back counts at once.
SELECT pg_backend_pid(), least(version, (SELECT max(version_id) FROM goose_db_version WHERE is_applied))::bigint, oldest_program
FROM ledger_schema;
