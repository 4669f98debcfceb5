// Package meter is the node agent: it finds out which pod holds which GPU of its node, cuts held time into intervals
// on fixed wall-clock boundaries, and keeps them on disk until the controller's intake has acknowledged them.
//
// # Where its facts come from
//
//   - Which devices: the kubelet's PodResources API, by namespace and name.
//   - Which pod that is, and when it started and finished: a watch of the node's pods, by UID (workload.Held).
//   - How busy the devices are: package nvml. Shown beside the rest, never billed.
//   - Which devices raised an XID error: package nvml. Reported before the intervals that follow, so that the controller
//     knows of a fault when an attempt that met it is settled. What the driver raises while no agent runs is not heard.
//
// # What it promises
//
//   - Intervals of a pod do not overlap, leave no hole, begin at the pod's start and end at its last container's
//     finish. However often the agent, the clock or the kubelet falls over, it is the same time that is cut.
//   - Time is cut only once it is confirmed: the kubelet still lists the pod some time later, or the pod's status
//     tells its finish. An unconfirmed moment waits; it is neither invented nor lost.
//   - Nothing leaves the spool but by the intake's answer. A full spool stops the cutting, and what was not cut yet is
//     cut later.
//   - Where it is not certain which pod holds a device, the time is unattributed and no one's (G31, G34).
//
// Each look at the node is gather → Decide → apply, with the apply one transaction of the spool.
package meter
