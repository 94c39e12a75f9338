-- The common case: each operation spends or peeks under one limit, and a counter meets equal
-- operations only. One statement then decides a whole batch set-wise, where `tidegate.decide` goes
-- through it charge by charge; it is the same arithmetic (tests/differential.rs).
--
-- Every limit here is a used quantity below a total, and a request adds `unit` per unit of cost:
--
--                      total     used      unit
--   token, leaky       a x b     debt      interval (a)
--   fixed, calendar    limit     count     1
--   sliding counter    limit     estimate  1
--
-- So of n equal requests the first m = (total - used) / (cost x unit) have room, and request r
-- (from 0) meets `used + least(r, m) x cost x unit`.
--
-- $1 keys, once each, ascending   $2 kinds   $3 .. $7 numbers   $8 costs   $9 how many requests
-- $10 whether they spend          $11, $12 the caller's tick and civil time, if these decide
--
-- Returns, per key and request in order: the key's place, whether it is strange, has room, remaining,
-- wait (-1 never), reset, delay. A strange state is one for `tidegate.decide` (of another algorithm or
-- window, or from the future): nothing was charged there. A key that has no row has none here either.
--
-- OFFSET 0 keeps a step's columns from being written out again in each expression of the next ones, which
-- would then be set up, and evaluated, once for each use. The UPDATE finds its rows by key and not by the
-- ctid that was locked: a version that came after the statement's snapshot is not seen by its ctid.
WITH locked AS MATERIALIZED (
    SELECT q.place, q.key, q.k, q.a, q.b, q.c AS first_end, q.d AS second_end, q.e AS third_end,
           q.cost, q.n, q.spends,
           s.kind AS s_kind, s.a AS s_a, s.b AS s_b, s.c AS s_c, s.d AS s_d, s.expires
    FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::bigint[], $9::int[], $10::bool[])
         WITH ORDINALITY AS q (key, k, a, b, c, d, e, cost, n, spends, place)
    JOIN tidegate.counters s ON s.key = q.key
    ORDER BY q.key
    FOR UPDATE OF s
), moment AS MATERIALIZED (
    -- After the locks, so that a key's times never run backwards.
    SELECT coalesce($11::bigint, clock) AS now, coalesce($12::bigint, $11::bigint, clock) AS wall
    FROM (SELECT count(*), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS clock
          FROM locked) AS scanned
), placed AS (
    SELECT l.*, m.now, m.wall,
           l.s_kind = 0 OR l.expires <= m.now AS fresh,
           -- Forgotten for good, also if the clock goes back: if nothing is written here, the function does.
           l.s_kind <> 0 AND l.expires <= m.now AS lapsed,
           CASE WHEN l.k = 7 THEN m.wall ELSE m.now END AS seen_at,
           CASE WHEN l.k IN (3, 5) THEN l.b * 1000000000 END AS length,
           CASE WHEN l.k = 5 THEN m.now / (l.b * 1000000000) * (l.b * 1000000000) END AS start,
           CASE WHEN l.cost <= CASE WHEN l.k <= 2 THEN l.b ELSE l.a END THEN l.cost ELSE 0 END AS asked
    FROM locked l CROSS JOIN moment m
), read AS (
    SELECT p.*,
           CASE WHEN fresh THEN false
                WHEN k <= 2 THEN s_kind <> 1 OR s_b <> a OR s_a - now > a * b
                WHEN k = 3 THEN s_kind <> 3 OR s_c <> b OR s_a - now NOT BETWEEN 1 AND length
                WHEN k = 7 THEN s_kind <> 7 OR s_c <> b OR s_a - wall NOT BETWEEN 1 AND b
                ELSE s_kind <> 5 OR s_d <> b OR s_a > start END
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
           CASE WHEN k = 5 AND NOT fresh AND s_a = start THEN s_c ELSE 0 END AS cur,
           CASE WHEN k = 5 THEN length - (now - start) END AS uncovered
    FROM placed p
    OFFSET 0
), measured AS (
    SELECT r.*,
           CASE WHEN k <= 2 THEN a * b ELSE a END AS total,
           CASE WHEN k <= 2 THEN a ELSE 1 END AS unit,
           CASE WHEN k <= 2 THEN CASE WHEN fresh THEN 0 ELSE GREATEST(s_a - now, 0) END
                WHEN k <> 5 THEN CASE WHEN fresh THEN 0 ELSE LEAST(s_b, a) END
                WHEN prev = 0 THEN cur
                -- The same in 64 bits where it fits them.
                WHEN prev::float8 * uncovered::float8 < 9e18 AND prev::float8 * uncovered::float8 + length::float8 < 9e18
                    THEN (prev * uncovered + (length - 1)) / length + cur
                ELSE div(prev::numeric * uncovered + (length - 1), length)::bigint + cur END AS used
    FROM read r
    OFFSET 0
), judged AS (
    SELECT w.*, asked * unit AS each,
           CASE WHEN spends AND cost > 0 AND asked > 0
                THEN LEAST(n, GREATEST(total - used, 0) / (asked * unit)) ELSE 0 END AS admitted
    FROM measured w
), counted AS MATERIALIZED (
    SELECT j.*, strange OR lapsed AND admitted = 0 AS refused FROM judged j
), written AS (
    UPDATE tidegate.counters t
    SET kind = CASE WHEN c.k <= 2 THEN 1 ELSE c.k END,
        a = CASE WHEN c.k <= 2 THEN c.now + c.used + c.admitted * c.each WHEN c.k = 5 THEN c.start ELSE c.stop END,
        b = CASE WHEN c.k <= 2 THEN c.a WHEN c.k = 5 THEN c.prev ELSE c.used + c.admitted * c.cost END,
        c = CASE WHEN c.k <= 2 THEN 0 WHEN c.k = 5 THEN c.cur + c.admitted * c.cost ELSE c.b END,
        d = CASE WHEN c.k = 5 THEN c.b ELSE 0 END,
        ticks = NULL, totals = NULL, ids = NULL,
        expires = CASE WHEN c.k <= 2 THEN c.now + c.used + c.admitted * c.each
                       WHEN c.k = 5 THEN c.start + 2 * c.length
                       WHEN c.k = 7 THEN c.stop + 7200000000000 ELSE c.stop END
    FROM counted c
    WHERE t.key = c.key AND c.admitted > 0 AND NOT c.refused
)
SELECT place, refused,
       possible AND ok,
       GREATEST((total - met - CASE WHEN ok THEN each ELSE 0 END) / unit, 0),
       CASE WHEN NOT possible THEN -1
            WHEN ok THEN 0
            WHEN k <= 2 THEN GREATEST(each - (total - met), 1)
            WHEN k <> 5 THEN GREATEST(stop - seen_at, 1)
            WHEN cur_now + asked <= a THEN
                GREATEST(length - tidegate.counter_share(a - cur_now - asked, length, prev) - (length - uncovered), 1)
            ELSE GREATEST(uncovered + length - tidegate.counter_share(a - asked, length, cur_now), 1) END,
       CASE WHEN k <= 2 THEN CASE WHEN ok THEN met + each ELSE met END
            WHEN k <> 5 THEN CASE WHEN ok AND met + each = 0 THEN 0 ELSE stop - seen_at END
            WHEN cur_now > 0 OR (ok AND asked > 0) THEN uncovered + length
            WHEN prev > 0 THEN uncovered ELSE 0 END,
       CASE WHEN k = 2 AND ok AND asked > 0 THEN met ELSE 0 END
FROM (SELECT counted.*, generate_series(0, n - 1) AS r FROM counted) AS c
CROSS JOIN LATERAL (
    SELECT c.used + LEAST(r, c.admitted) * c.each AS met,
           c.cur + LEAST(r, c.admitted) * c.cost AS cur_now,
           c.cost <= CASE WHEN c.k <= 2 THEN c.b ELSE c.a END AS possible
) AS at
CROSS JOIN LATERAL (SELECT at.met + c.each <= c.total OR c.cost = 0 AS ok) AS measured_again
ORDER BY place, r
