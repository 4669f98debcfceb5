package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// The group roles of gpubank's parts, as postgres.Roles names them; stated again because this package is below that one.
const (
	ControllerRole = "gpubank_controller"
	ReaderRole     = "gpubank_reader"
	SchedulerRole  = "gpubank_scheduler"
	WebhookRole    = "gpubank_webhook"
)

var partRoles = []string{ControllerRole, ReaderRole, SchedulerRole, WebhookRole}

// loginOf is the role that a part logs in as, a member of its group role.
func loginOf(role string) string { return "credit_" + strings.TrimPrefix(role, "gpubank_") }

// createLogins makes the group roles and a login for each, as the administrator of a production database does.
func (pg *Postgres) createLogins(ctx context.Context) error {
	pg.partPasswords = make(map[string]string)
	var statements []string
	for _, role := range partRoles {
		pg.partPasswords[role] = rand.Text()
		statements = append(statements, fmt.Sprintf("CREATE ROLE %s NOLOGIN; CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE %[1]s",
			role, loginOf(role), pg.partPasswords[role]))
	}
	if err := pg.exec(ctx, strings.Join(statements, "; ")); err != nil {
		return fmt.Errorf("create the parts' roles: %w", err)
	}
	return nil
}

// URLAs is the address of a database for the login of a part, by its group role.
func (pg *Postgres) URLAs(role, database string) string {
	password, known := pg.partPasswords[role]
	if !known {
		panic("cluster: no part has the role " + role)
	}
	return pg.url(loginOf(role), password, database)
}

// SetPassword changes the password of a part's login; URLAs gives the new one from then on.
func (pg *Postgres) SetPassword(ctx context.Context, role, password string) error {
	if err := pg.exec(ctx, fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", loginOf(role), strings.ReplaceAll(password, "'", "''"))); err != nil {
		return fmt.Errorf("change the password of %s: %w", loginOf(role), err)
	}
	pg.partPasswords[role] = password
	return nil
}
