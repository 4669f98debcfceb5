package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/cli"
	"github.com/gpubank/gpubank/pkg/webhook"
)

// quote asks admission's own code.
func quote(ctx context.Context, cluster client.Reader, quoter cli.Quoter, namespace string, workload client.Object) (cli.Quote, error) {
	answer, err := webhook.QuoteWorkload(ctx, cluster, quoter, namespace, workload)
	if err != nil {
		return cli.Quote{}, err
	}
	quote := cli.Quote{
		Admitted: answer.Decision.Allowed, Code: string(answer.Decision.Code), Message: answer.Decision.Message,
		Account: answer.AccountName, Cost: answer.Cost, Refusal: answer.Refusal, Warnings: answer.Warnings,
	}
	if hold := answer.Hold; hold != nil {
		quote.Subject, quote.Class, quote.MaxGPUs, quote.GPUSeconds = hold.Subject, hold.Command.Class, hold.Command.MaxGPUs, hold.Command.GPUSeconds
	}
	return quote, nil
}
