// Package postgres makes the ledger's decisions durable.
package postgres
