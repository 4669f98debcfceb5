// Package intakeapi is what a node agent and the controller's meter intake say to each other: HTTPS with a bearer
// service-account token of audience Audience, JSON bodies, two calls.
//
//	POST /v1/register   RegisterRequest  → RegisterResponse
//	POST /v1/intervals  IntervalsRequest → IntervalsResponse, one result per interval, in order
//
// Everything but 200 carries an ErrorResponse:
//
//	400  the request is malformed; sending it again will not help
//	401  no valid token; 403 the token is not that node's
//	409  a newer agent of the node has registered: this process must stop reporting (I7)
//	413  more than MaxIntervals intervals or MaxBodyBytes bytes
//	429, 503  not now: ask again later, after Retry-After if it is given
//
// Times are UTC with microsecond precision, the finest that the ledger keeps.
package intakeapi
