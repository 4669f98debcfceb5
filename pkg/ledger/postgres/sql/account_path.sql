-- name: AccountPath
-- An account and all above it, itself first. No cycle is ever stored; CYCLE ends one that somebody else made.
WITH RECURSIVE path (member, above, depth) AS (
    SELECT name, parent, 0 FROM account WHERE name = $1
    UNION ALL
    SELECT a.name, a.parent, depth + 1 FROM path JOIN account a ON a.name = path.above
) CYCLE member SET is_cycle USING visited
SELECT {account} FROM path JOIN account ON name = member WHERE NOT is_cycle ORDER BY depth;
