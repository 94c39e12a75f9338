-- Fixed windows, calendar quotas and sliding counters: each operation spends or peeks under one of them,
-- and a counter meets equal operations only. What is returned is what was found; the verdicts are the
-- pure functions' (plain.rs).
--
-- Every limit here is a used quantity below a quota: of a window or period the count, of a sliding
-- counter the estimate. So of n equal requests the first (quota - used) / cost have room.
--
-- $1 keys, once each, ascending      $2 kinds                     $3 .. $7 numbers
-- $8 costs, from 1                   $9 how many requests spend   $10, $11 the caller's tick and civil time,
--                                                                 if these decide
--
-- Returns, per key that has a row: its place, whether its state is for `tidegate.decide` (of another
-- algorithm or window, from the future, or lapsed and not written here, so to be forgotten for good also
-- if the clock goes back: nothing was charged), and what was found before the first request, as
-- `WireLimit::recall` takes it: time left, count, 0; of a sliding counter time gone, current, previous.
--
-- OFFSET 0 keeps a step's columns from being written out again in each expression of the next ones, which
-- would then be set up, and evaluated, once for each use. The UPDATE finds its rows by key and not by the
-- ctid that was locked: a version that came after the statement's snapshot is not seen by its ctid.
WITH locked AS MATERIALIZED (
    SELECT q.*, s.kind AS s_kind, s.a AS s_a, s.b AS s_b, s.c AS s_c, s.d AS s_d, s.expires
    FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::bigint[], $9::int[])
         WITH ORDINALITY AS q (key, k, quota, span, first_end, second_end, third_end, cost, n, place)
    JOIN tidegate.counters s ON s.key = q.key
    ORDER BY q.key
    FOR UPDATE OF s
), moment AS MATERIALIZED (
    -- After the locks, so that a key's times never run backwards.
    SELECT coalesce($10::bigint, clock) AS now, coalesce($11::bigint, $10::bigint, clock) AS wall
    FROM (SELECT count(*), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS clock
          FROM locked) AS scanned
), placed AS (
    SELECT l.*, m.now, m.wall,
           l.s_kind = 0 OR l.expires <= m.now AS fresh,
           CASE WHEN l.k <> 7 THEN l.span * 1000000000 END AS length,
           CASE WHEN l.k = 5 THEN m.now / (l.span * 1000000000) * (l.span * 1000000000) END AS start
    FROM locked l CROSS JOIN moment m
), read AS (
    SELECT p.*,
           CASE WHEN fresh THEN false
                WHEN k = 3 THEN s_kind <> 3 OR s_c <> span OR s_a - now NOT BETWEEN 1 AND length
                WHEN k = 7 THEN s_kind <> 7 OR s_c <> span OR s_a - wall NOT BETWEEN 1 AND span
                ELSE s_kind <> 5 OR s_d <> span OR s_a > start END
           OR (k = 7 AND fresh AND third_end * 1000000000 <= wall)
           -- What `tidegate.decide` would forget again: two clocks that are far apart.
           OR (k = 7 AND now - wall > 7200000000000) AS strange,
           CASE WHEN k = 3 THEN CASE WHEN fresh THEN (now / length + 1) * length ELSE s_a END
                WHEN k = 7 THEN CASE WHEN NOT fresh THEN s_a
                                     WHEN first_end * 1000000000 > wall THEN first_end * 1000000000
                                     WHEN second_end * 1000000000 > wall THEN second_end * 1000000000
                                     ELSE third_end * 1000000000 END END AS stop,
           CASE WHEN k <> 5 OR fresh OR s_a + length < start THEN 0
                WHEN s_a = start THEN s_b ELSE s_c END AS prev,
           CASE WHEN k = 5 THEN CASE WHEN NOT fresh AND s_a = start THEN s_c ELSE 0 END
                WHEN fresh THEN 0 ELSE LEAST(s_b, quota) END AS cur,
           CASE WHEN k = 5 THEN length - (now - start) END AS uncovered
    FROM placed p
    OFFSET 0
), measured AS (
    SELECT r.*,
           CASE WHEN prev = 0 THEN cur
                -- The same in 64 bits where it fits them.
                WHEN prev::float8 * uncovered::float8 < 9e18 AND prev::float8 * uncovered::float8 + length::float8 < 9e18
                    THEN (prev * uncovered + (length - 1)) / length + cur
                ELSE div(prev::numeric * uncovered + (length - 1), length)::bigint + cur END AS used
    FROM read r
    OFFSET 0
), judged AS (
    SELECT m.*, LEAST(n, GREATEST(quota - used, 0) / cost) AS admitted FROM measured m
), counted AS MATERIALIZED (
    SELECT j.*, strange OR fresh AND s_kind <> 0 AND admitted = 0 AS refused FROM judged j
), written AS (
    UPDATE tidegate.counters t
    SET kind = c.k,
        a = CASE WHEN c.k = 5 THEN c.start ELSE c.stop END,
        b = CASE WHEN c.k = 5 THEN c.prev ELSE c.cur + c.admitted * c.cost END,
        c = CASE WHEN c.k = 5 THEN c.cur + c.admitted * c.cost ELSE c.span END,
        d = CASE WHEN c.k = 5 THEN c.span ELSE 0 END,
        ticks = NULL, totals = NULL, ids = NULL,
        expires = CASE WHEN c.k = 5 THEN c.start + 2 * c.length
                       WHEN c.k = 7 THEN c.stop + 7200000000000 ELSE c.stop END
    FROM counted c
    WHERE t.key = c.key AND c.admitted > 0 AND NOT c.refused
)
SELECT place, refused,
       CASE k WHEN 3 THEN stop - now WHEN 7 THEN stop - wall ELSE now - start END, cur, prev
FROM counted
