package identity

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the guard does. Labels hold reasons, never names of
// people or instances.
type Metrics struct {
	decisions *prometheus.CounterVec
	latency   prometheus.Histogram
	fetches   *prometheus.CounterVec
	fetched   prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "magicstick_guard_decisions_total",
			Help: "Requests that the gateway asked about, by outcome (allow, deny) and reason.",
		}, []string{"outcome", "reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "magicstick_guard_decision_seconds",
			Help:    "Time from reading a check to its decision.",
			Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1, 2.5},
		}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "magicstick_guard_key_fetches_total",
			Help: "Fetches of the realm's signing keys, by outcome (success, failure).",
		}, []string{"outcome"}),
		fetched: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "magicstick_guard_keys_fetched_timestamp_seconds",
			Help: "When the realm's signing keys were last fetched, in seconds since 1970; 0 for never.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.decisions, m.latency, m.fetches, m.fetched} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) decided(decision Decision, took time.Duration) {
	outcome := "deny"
	if decision.Allow {
		outcome = "allow"
	}
	m.decisions.WithLabelValues(outcome, string(decision.Reason)).Inc()
	m.latency.Observe(took.Seconds())
}

func (m *Metrics) keysFetched(err error, now time.Time) {
	if err != nil {
		m.fetches.WithLabelValues("failure").Inc()
		return
	}
	m.fetches.WithLabelValues("success").Inc()
	m.fetched.Set(float64(now.Unix()))
}
