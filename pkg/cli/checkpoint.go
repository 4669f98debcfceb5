package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/workload"
)

func checkpointCommand(where *cluster, deps Dependencies) *cobra.Command {
	var namespace, at, uri, sha256 string
	command := &cobra.Command{
		Use:   "checkpoint POD",
		Short: "Report that a pod's work is durably saved",
		Long: "Report that a pod's work is durably saved, by the annotation " + workload.CheckpointedAtAnnotation + " on the pod.\n\n" +
			"When somebody has to stop, it is whoever loses least since the last checkpoint; and where the account's policy says so,\n" +
			"what is given back after a preemption is the time since then. Report after the checkpoint is complete, not before.\n\n" +
			"It needs the right to get and patch the pod. A time in the future, or before the pod's start, is refused.",
		Example: "  kubectl credit checkpoint train-0-x7k2p\n" +
			"  kubectl credit checkpoint train-0-x7k2p --at 2026-03-01T12:00:00Z --uri s3://bucket/run/step-1000",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			home, err := where.namespace(namespace)
			if err != nil {
				return err
			}
			api, err := where.client()
			if err != nil {
				return err
			}
			pod := &corev1.Pod{}
			if err := api.Get(command.Context(), client.ObjectKey{Namespace: home, Name: arguments[0]}, pod); err != nil {
				return fmt.Errorf("read pod %s/%s: %w", home, arguments[0], err)
			}
			report, err := decideCheckpoint(pod, deps.Now(), at, uri, sha256)
			if err != nil {
				return fmt.Errorf("report a checkpoint of pod %s/%s: %w", home, pod.Name, err)
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": report}})
			if err != nil {
				return err
			}
			if err := api.Patch(command.Context(), pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
				return fmt.Errorf("report a checkpoint of pod %s/%s: %w", home, pod.Name, err)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "pod %s/%s: checkpoint of %s reported\n", home, pod.Name, report[workload.CheckpointedAtAnnotation])
			return err
		},
	}
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of the pod; default as kubectl's.")
	command.Flags().StringVar(&at, "at", "", "When the checkpoint was complete, in RFC 3339; default now.")
	command.Flags().StringVar(&uri, "uri", "", "Where it is, such as s3://bucket/run/step-1000.")
	command.Flags().StringVar(&sha256, "sha256", "", "SHA-256 of its content, in hexadecimal digits.")
	return command
}

// decideCheckpoint returns the annotations of a report; nil removes one that an earlier checkpoint left. What the cluster would
// ignore is refused here already.
func decideCheckpoint(pod *corev1.Pod, now time.Time, at, uri, sha256 string) (map[string]any, error) {
	if at == "" {
		at = now.UTC().Format(time.RFC3339)
	}
	text := map[string]string{
		workload.CheckpointedAtAnnotation: at, workload.CheckpointURIAnnotation: uri, workload.CheckpointSHA256Annotation: sha256,
	}
	said, problems := workload.ReadCheckpoints(text)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %s", problems[0].Annotation, problems[0].Message)
	}
	held := workload.Held(pod)
	if held.Ended {
		return nil, fmt.Errorf("it is over; only a running pod's checkpoint counts")
	}
	if _, err := said.LastAt(held.Start, now); err != nil {
		return nil, err
	}
	report := map[string]any{}
	for name, value := range text {
		if report[name] = value; value == "" {
			report[name] = nil
		}
	}
	return report, nil
}
