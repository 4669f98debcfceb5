// Package clustertest gives tests the real parts of package cluster: one PostgreSQL and one control plane for all tests
// of a package, started when the first test asks, and a fresh database for each test that wants one.
//
// A package that uses it says so once:
//
//	func TestMain(m *testing.M) { clustertest.Main(m) }
//
// When a program is missing, the test fails with the command that installs it; but for PgBouncer, without which a test of it is
// skipped unless REQUIRE_PGBOUNCER is set.
package clustertest
