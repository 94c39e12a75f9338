-- Token and leaky buckets: each operation spends or peeks under one of them, and a counter meets equal
-- operations only. What is returned is what was found; the verdicts are the pure functions' (bucket.rs).
--
-- $1 keys, once each, ascending        $2 emission intervals   $3 capacities
-- $4 prices, from 1: debt per request  $5 how many requests    $6 the caller's tick, if that decides
--
-- Returns, per key that has a row: its place, whether its state is for `tidegate.decide` (of another
-- algorithm or interval, from the future, or lapsed and not written here, so to be forgotten for good
-- also if the clock goes back: nothing was charged), and the debt before the first request.
--
-- The UPDATE finds its rows by key and not by the ctid that was locked: a version that came after the
-- statement's snapshot is not seen by its ctid. Columns that it leaves alone say nothing of a bucket.
WITH locked AS MATERIALIZED (
    SELECT q.*, s.kind, s.a, s.b
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[])
         WITH ORDINALITY AS q (key, interval, capacity, price, n, place)
    JOIN tidegate.counters s ON s.key = q.key
    ORDER BY q.key
    FOR UPDATE OF s
), moment AS MATERIALIZED (
    -- After the locks, so that a key's times never run backwards.
    SELECT coalesce($6::bigint, clock) AS now
    FROM (SELECT count(*), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS clock
          FROM locked) AS scanned
), found AS (
    SELECT l.*, m.now, CASE WHEN l.kind = 0 THEN 0 ELSE GREATEST(l.a - m.now, 0) END AS debt
    FROM locked l CROSS JOIN moment m
), priced AS (
    -- Of n equal requests, as many are admitted as their prices fit above the debt.
    SELECT f.*, LEAST(n, (capacity - debt) / price) * price AS added FROM found f
), decided AS MATERIALIZED (
    SELECT place, key, interval, debt, added, now + debt + added AS tat,
           kind > 1 OR kind = 1 AND (b <> interval OR debt > capacity OR debt + added = 0) AS refused
    FROM priced
), written AS (
    UPDATE tidegate.counters t
    SET kind = 1, a = d.tat, b = d.interval, expires = d.tat
    FROM decided d
    WHERE t.key = d.key AND d.added > 0 AND NOT d.refused
)
SELECT place, refused, debt FROM decided
