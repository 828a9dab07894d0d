package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/alertmanager"
	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// AlertOptions are the options that docs/alerts.md explains.
type AlertOptions struct {
	Alerts       string   `group:"first" type:"path" placeholder:"FILE" help:"TOML file with rules of alerts, which are no medical alarms. It is read again when it changes. Default: no alerts."`
	Alertmanager []string `group:"alerts" placeholder:"URL" help:"Prometheus Alertmanager to which active alerts are sent, such as http://127.0.0.1:9093; may be repeated. Default: none."`

	AlertmanagerCA          string        `name:"alertmanager-ca" group:"alerts" type:"path" placeholder:"FILE" help:"CA certificates in PEM that verify the certificates of the Alertmanagers. Default: those of the system."`
	AlertmanagerCredentials string        `name:"alertmanager-credentials-file" group:"alerts" type:"path" placeholder:"FILE" help:"File with NAME:PASSWORD for basic authentication at the Alertmanagers, or with a bearer token, which has no colon. It may change. Default: none are sent."`
	AlertmanagerEvery       time.Duration `group:"alerts" default:"1m" help:"How often active alerts are sent again. An Alertmanager resolves an alert that was not sent for four times as long and a minute."`
}

// urls parses the URLs of the Alertmanagers, and checks the options.
func (c *AlertOptions) urls() (all []*url.URL, err error) {
	secret := c.AlertmanagerCredentials != ""
	for _, text := range c.Alertmanager {
		u := webURL(text)
		if u == nil { // the value is not quoted: it may contain a password
			return nil,
				settings.Usagef("--alertmanager is not of the form http://host:port, without a user, a query or a fragment")
		}
		switch {
		case slices.ContainsFunc(all, func(o *url.URL) bool { return o.String() == u.String() }):
			return nil, settings.Usagef("--alertmanager %s is given twice", u)
		case secret && u.Scheme == "http" && !isLoopback(u.Host):
			return nil, settings.Usagef("--alertmanager %s: the password or token would be sent in clear text; use https", u)
		case c.AlertmanagerCA != "" && u.Scheme == "http":
			return nil, settings.Usagef("--alertmanager-ca requires an --alertmanager with https")
		}
		all = append(all, u)
	}
	return all, firstBroken(
		rule{len(all) == 0 || c.Alerts != "", "--alertmanager requires --alerts"},
		rule{len(all) > 0 || !secret && c.AlertmanagerCA == "",
			"--alertmanager-ca and --alertmanager-credentials-file require --alertmanager"},
		rule{c.AlertmanagerEvery >= time.Second && c.AlertmanagerEvery <= time.Hour,
			"--alertmanager-every must be from 1s to 1h"},
	)
}

// An alerting evaluates rules and reports alerts. The zero alerting has no rules.
type alerting struct {
	engine  *alert.Engine // nil means no alerts
	senders alertmanager.Senders
	file    *filewatch.Follower
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	log     *slog.Logger

	caExpires time.Time // when the first of the Alertmanagers' CAs expires; zero means none
}

// start reads the rules and starts to evaluate them. Changes are passed to hub. page is the URL of the
// page, unless c has a public one.
func (a *alerting) start(
	c *Options, store store, hub *live.Hub, labels *roster.Book, flags *vitals.FlagLimits, page string, log *slog.Logger,
) error {
	a.log = log
	opt, err := c.sending(cmp.Or(c.publicURL(), page))
	if err != nil {
		return err
	}
	opt.OnTrouble, opt.Roster = a.trouble, labels
	a.caExpires = opt.RootsExpire
	warnExpiry(log, "alertmanager_ca", c.AlertmanagerCA, opt.RootsExpire)
	urls, err := c.urls()
	if err != nil {
		return err
	}
	var rules []alert.Rule
	a.file, err = filewatch.Follow(filewatch.Options{
		Paths: []string{c.Alerts},
		Load: func() (changed bool, err error) {
			read, err := alert.ReadRules(c.Alerts, flags)
			if err != nil || a.engine != nil && reflect.DeepEqual(read, rules) {
				return false, err
			}
			if a.engine == nil {
				opt := alert.Options{
					Shared:   c.Store != "",
					MaxBytes: c.alertBytes,
					Retain:   c.Retain,
					OnError:  func(err error) { log.Error("reading stored readings for alerts failed", "error", err) },
				}
				if len(urls) > 0 {
					opt.Grace = c.AlertmanagerEvery
				}
				a.engine = alert.NewEngine(store, read, opt)
			} else if err := a.engine.SetRules(read); err != nil {
				return false, fmt.Errorf("%s: %w", c.Alerts, err)
			}
			rules = read
			return true, nil
		},
		OnLoad: func(err error) {
			if err != nil {
				log.Error("the rules of alerts cannot be used; the previous ones stay in force", "error", err)
				return
			}
			log.Info("rules of alerts loaded", "rules", len(rules))
		},
	})
	if err != nil {
		return settings.Usagef("--alerts: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.tasks.Go(func() { a.engine.Run(ctx) })
	a.tasks.Go(func() {
		alert.Follow(ctx, a.engine, &query.Service{Subjects: store, Roster: labels}, hub.PublishAlerts)
	})
	for _, u := range urls {
		opt.URL = u
		s := alertmanager.New(a.engine, opt)
		a.senders = append(a.senders, s)
		a.tasks.Go(func() { s.Run(ctx) })
	}
	log.Info("alerts", "rules", len(rules), "alertmanagers", strings.Join(c.Alertmanager, ","), "notice", alert.Notice)
	return nil
}

// sending returns the options of senders. The files that they name must be readable at the start.
func (c *AlertOptions) sending(page string) (opt alertmanager.Options, err error) {
	opt = alertmanager.Options{
		Every: c.AlertmanagerEvery, CredentialsFile: c.AlertmanagerCredentials,
		Page: strings.TrimRight(page, "/") + "/",
	}
	if path := c.AlertmanagerCredentials; path != "" {
		if _, err := sharedfile.Secret(path); err != nil {
			return opt, err
		}
	}
	if c.AlertmanagerCA != "" {
		pem, err := sharedfile.Read(c.AlertmanagerCA, 4<<20)
		if err != nil {
			return opt, err
		}
		cas, err := tlsfiles.ParseCertificates(pem)
		if err != nil {
			return opt, fmt.Errorf("%s: %w", c.AlertmanagerCA, err)
		}
		opt.Roots, opt.RootsExpire = x509.NewCertPool(), tlsfiles.Earliest(cas)
		for _, ca := range cas {
			opt.Roots.AddCert(ca)
		}
	}
	return opt, nil
}

// trouble logs when an Alertmanager begins to fail, and when it works again.
func (a *alerting) trouble(s *alertmanager.Sender, err error) {
	if err == nil {
		a.log.Info("the Alertmanager accepts alerts again", "url", s.URL())
		return
	}
	a.log.Error("the Alertmanager does not accept alerts; active ones are sent again and again", "url", s.URL(),
		"error", err)
}

// publish takes what a group has stored.
func (a *alerting) publish(group []*storage.Entry) {
	if a.engine != nil {
		a.engine.Publish(group)
	}
}

// erased ends the alerts of a device of which readings were erased.
func (a *alerting) erased(device vitals.Name) {
	if a.engine != nil {
		a.engine.Erased(device)
	}
}

// reload reads the rules again.
func (a *alerting) reload() error {
	if a.engine == nil {
		return nil
	}
	return a.file.Reload()
}

// stop ends the evaluation. With wait, it has ended when stop returns, and no longer uses the store.
func (a *alerting) stop(wait bool) {
	if a.engine == nil {
		return
	}
	a.cancel()
	if wait {
		a.file.Close()
		a.tasks.Wait()
	}
}
