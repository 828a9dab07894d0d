BEGIN ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE ONLY pulsegate.readings IN ACCESS SHARE MODE;
SELECT pg_export_snapshot();
SELECT device, to_timestamp(time_ms / 1000.0) AS time, heart_rate_bpm FROM pulsegate.all_readings
WHERE device = 'bed-7' AND stored_to_ms >= 1763719200000 AND heart_rate_bpm IS NOT NULL ORDER BY time_ms DESC LIMIT 1;
SELECT to_timestamp(time_ms / 1000.0) AS time, heart_rate_bpm, spo2_pct, systolic_mmhg, diastolic_mmhg
FROM pulsegate.readings_between(1763719200000, 1763719200000 + 86400000) WHERE device = 'bed-7' ORDER BY time_ms;
SELECT to_timestamp(time_ms / 3600000 * 3600) AS hour, avg(heart_rate_bpm) AS mean, count(heart_rate_bpm) AS count
FROM pulsegate.readings_between(1763719200000, 1763719200000 + 86400000) WHERE device = 'bed-7' GROUP BY 1 ORDER BY 1;
SELECT d.device, to_timestamp(r.time_ms / 1000.0) AS last FROM pulsegate.devices AS d
CROSS JOIN LATERAL (SELECT max(time_ms) AS time_ms FROM pulsegate.readings WHERE device = d.device) AS r
WHERE r.time_ms < (extract(epoch FROM now()) - 3600) * 1000 ORDER BY r.time_ms, d.device;
SELECT a.subject, r.device, to_timestamp(r.time_ms / 1000.0) AS time, r.heart_rate_bpm FROM pulsegate.assignments AS a
JOIN pulsegate.all_readings AS r ON r.device = a.device AND r.stored_to_ms >= a.from_ms AND r.stored_from_ms < a.to_ms
	AND r.time_ms >= a.from_ms AND r.time_ms < a.to_ms WHERE a.subject = 'patient-1' ORDER BY r.time_ms LIMIT 100;
ALTER SYSTEM SET wal_level = 'logical';               -- and restart; in the manager's configuration, if there is one
CREATE PUBLICATION downstream FOR TABLE pulsegate.readings WITH (publish_via_partition_root = true);
