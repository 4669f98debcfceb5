package lifecycle

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// metrics count what became of reservations, and what needs a person.
type metrics struct {
	settlements  *prometheus.CounterVec
	alerts       *prometheus.CounterVec
	allocations  *prometheus.GaugeVec
	reservations *prometheus.GaugeVec
	renewals     *prometheus.CounterVec
	stops        prometheus.Counter
	refunds      *prometheus.CounterVec
	lost         *prometheus.CounterVec
	estimates    prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		settlements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_settlements_total",
			Help: "Reservations closed, by outcome (Settled, Released, Expired).",
		}, []string{"outcome"}),
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_lifecycle_alerts_total",
			Help: "Times that a pod's state and the ledger could not be brought together without a person, by reason.",
		}, []string{"reason"}),
		allocations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_allocations",
			Help: "Open allocations at the last sweep, by state.",
		}, []string{"state"}),
		reservations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_reservations",
			Help: "Open reservations at the last sweep, by state.",
		}, []string{"state"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_hold_renewals_total",
			Help: "Renewals of holds that the ledger was asked for, by outcome (granted, refused).",
		}, []string{"outcome"}),
		stops: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpubank_stopped_pods_total",
			Help: "Pods deleted because their hold was used up.",
		}),
		refunds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_refunds_total",
			Help: "Attempts of whose charge something was given back, by cause (Failed, Preempted, DeviceFault).",
		}, []string{"cause"}),
	}
	m.lost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpubank_preemption_lost_gpu_seconds_total",
		Help: "GPU-seconds of work that preemptions were found to have destroyed, by the account that lost them and by the preemption's reason (Priority, Reclaim).",
	}, []string{"account", "reason"})
	m.estimates = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gpubank_preemption_found_by_believed_ratio",
		Help: "GPU-seconds that a preemption was found to have destroyed, divided by what was believed before.",
		// 1 is right; beyond 2 somebody's checkpoints are not what they were said to be.
		Buckets: []float64{0.25, 0.5, 0.9, 1, 1.1, 1.5, 2, 4, 16},
	})
	registry.MustRegister(m.lost, m.estimates)
	registry.MustRegister(m.settlements, m.alerts, m.allocations, m.reservations, m.renewals, m.stops, m.refunds)
	return m
}

func (m *metrics) showOpen(allocations []ledger.Allocation, reservations []ledger.Reservation) {
	perState := map[ledger.AllocationState]int{
		ledger.AllocationIntended: 0, ledger.AllocationBound: 0, ledger.AllocationMetering: 0, ledger.AllocationSuspect: 0,
	}
	for _, allocation := range allocations {
		perState[allocation.State]++
	}
	for state, count := range perState {
		m.allocations.WithLabelValues(string(state)).Set(float64(count))
	}
	held := map[ledger.ReservationState]int{ledger.Held: 0, ledger.Active: 0}
	for _, reservation := range reservations {
		held[reservation.State]++
	}
	for state, count := range held {
		m.reservations.WithLabelValues(string(state)).Set(float64(count))
	}
}
