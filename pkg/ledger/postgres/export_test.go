package postgres

// AuditIn is Store.Audit within a transaction of the test's own, which may have broken something first.
var AuditIn = audit
