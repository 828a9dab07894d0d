package main

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pulsegate/pulsegate/bench/answers"
)

const createTable = `CREATE TABLE IF NOT EXISTS readings (
	device text NOT NULL,
	time timestamptz NOT NULL,
	systolic_mmhg double precision,
	diastolic_mmhg double precision,
	spo2_pct double precision,
	heart_rate_bpm double precision,
	resting_heart_rate_bpm double precision,
	received timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (device, time)
)`

const insertReading = `INSERT INTO readings
	(device, time, systolic_mmhg, diastolic_mmhg, spo2_pct, heart_rate_bpm, resting_heart_rate_bpm)
	VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`

// serveGinPG answers when the INSERT of the reading is committed. pgx prepares the
// statement once per connection.
func serveGinPG(ctx context.Context, l net.Listener, cfg config) error {
	pc, err := pgxpool.ParseConfig(cfg.dsn)
	if err != nil {
		return fmt.Errorf("read DSN: %w", err)
	}
	pc.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return fmt.Errorf("open pool: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, createTable); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	return serveHTTP(ctx, l, newGin(func(ctx context.Context, r *answers.Reading) error {
		_, err := pool.Exec(ctx, insertReading, r.Device, r.Time, r.Systolic, r.Diastolic, r.SpO2, r.HeartRate, r.Resting)
		return err
	}))
}
