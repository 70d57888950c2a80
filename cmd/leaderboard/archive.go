package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/archive"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// archives copies sealed seasons into the archive of the settings.
type archives struct {
	config      *config.Archive
	sealed      chan struct{} // wakes run
	lastSuccess prometheus.Gauge
	failures    prometheus.Counter
	seasons     prometheus.Counter
}

func newArchives(c *config.Archive, reg prometheus.Registerer) *archives {
	f := promauto.With(reg)
	return &archives{
		config: c, sealed: make(chan struct{}, 1),
		lastSuccess: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "leaderboard", Subsystem: "archive", Name: "last_success_timestamp_seconds",
			Help: "Time at which this process last found the archive complete, or completed it, in Unix seconds. 0 before, and while another process archives.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Namespace: "leaderboard", Subsystem: "archive", Name: "failures_total", Help: "Runs of the archive that failed. The next run continues.",
		}),
		seasons: f.NewCounter(prometheus.CounterOpts{
			Namespace: "leaderboard", Subsystem: "archive", Name: "seasons_total", Help: "Seasons that this process has archived, again after each change.",
		}),
	}
}

func (a *archives) noteSeal(leaderboard.SeasonKey) {
	select {
	case a.sealed <- struct{}{}:
	default:
	}
}

// run archives at once, after each seal of this process, and in intervals, until ctx is done. Of several processes, one
// archives, and the others skip the run.
func (a *archives) run(ctx context.Context, source archive.Source, log *slog.Logger) {
	ticker := time.NewTicker(a.config.Every)
	defer ticker.Stop()
	for {
		start := time.Now()
		report, err := archive.Run(ctx, source, string(a.config.To), string(a.config.Password), archive.Options{Now: time.Now})
		a.seasons.Add(float64(report.Archived))
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, archive.ErrBusy):
			log.DebugContext(ctx, "another process archives")
		case err != nil:
			a.failures.Inc()
			log.ErrorContext(ctx, "archive failed; the next run continues", "err", err)
		default:
			a.lastSuccess.SetToCurrentTime()
			if report.Archived+report.Erased+report.Changing > 0 {
				log.InfoContext(ctx, "seasons archived", "seasons", report.Archived, "results", report.Results, "erased_users", report.Erased,
					"changing", report.Changing, "after", time.Since(start).Round(time.Millisecond))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.sealed:
		}
	}
}
