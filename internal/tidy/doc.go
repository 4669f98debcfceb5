// Package tidy has no code of its own: its tests keep the repository as DESIGN.md says. Imports run one way, cgo stays
// in one package, and the product names no registry.
package tidy
