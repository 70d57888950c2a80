package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

// untilDrained returns a context that is done DrainTime after ctx. During DrainTime, the server is
// not ready, so that load balancers choose other servers. Without the API role, DrainTime does not
// apply. The caller must call cancel.
func (s *server) untilDrained(ctx context.Context) (running context.Context, cancel context.CancelCauseFunc) {
	running, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		s.draining.Store(true)
		if s.api != nil {
			s.api.Drain()
			if wait := s.config.DrainTime; wait > 0 {
				s.log.InfoContext(ctx, "draining", "for", wait)
				select {
				case <-time.After(wait):
				case <-running.Done():
				}
			}
		}
		end(nil)
	})
	return running, func(cause error) {
		stop()
		end(cause)
	}
}

// reloadOnHangup calls reload at each SIGHUP, until the caller calls stop.
func (s *server) reloadOnHangup(load func() (config.Effective, error), level *slog.LevelVar) (stop func()) {
	hangups, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range hangups {
			s.reload(load, level)
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}

// reload reads the settings, the certificates and the denied names again. It applies the log level, the
// certificates and the names, and logs the other changed settings. It ends at the first file that it
// cannot read.
func (s *server) reload(load func() (config.Effective, error), level *slog.LevelVar) {
	loaded, err := load()
	if err == nil {
		err = s.certificates.Reload()
	}
	if err == nil {
		err = s.deniedNames.Reload()
	}
	if err != nil {
		s.log.Error("settings not reloaded", "err", err)
		return
	}
	level.Set(loaded.Log.SlogLevel())
	s.log.Info("settings reloaded", "log_level", loaded.Log.Level)
	var keys []string // keys of the other changed settings
	current := s.config.Settings()
	for i, setting := range loaded.Settings() {
		if setting.Key != "log.level" && !setting.Equal(current[i]) {
			keys = append(keys, setting.Key)
		}
	}
	if len(keys) > 0 {
		s.log.Warn("changed settings need a restart", "settings", keys)
	}
}
