-- Token and leaky buckets: each operation spends under one of them, at most its capacity, and a counter
-- meets equal operations only. What is returned is what was found; the verdicts are the pure functions'.
--
-- $1 keys, once each, ascending        $2 emission intervals   $3 capacities
-- $4 prices, from 1: debt per request  $5 how many requests    $6 the caller's tick, if that decides
--
-- Returns, per key whose row is fresh or of this interval and burst: its place, false, and the debt before the
-- first request, which the row keeps in `c` because RETURNING knows no row as it was. Of others nothing
-- is charged. `d` is the excess: units in use that were above the burst when it was lowered; `e` is the burst.
--
-- Rows are locked in the order of their keys, because the join goes through them in the subquery's order
-- (another plan risks a deadlock, which is repeated, and nothing else). A row that another transaction
-- changed meanwhile is computed again as that left it, with the time after the wait for it: so a key's
-- times never run backwards. Of n equal requests, as many are admitted as their prices fit above the
-- debt; a denial is written too, and changes no state but one above the capacity.
UPDATE tidegate.counters AS t
SET (kind, a, b, c, d, expires, e) = (
    SELECT 1, tat, q.interval, debt, CASE WHEN debt = 0 THEN 0 ELSE t.d END, tat, q.capacity / q.interval
    FROM (SELECT debt, now + debt + LEAST(q.n, (q.capacity - debt) / q.price) * q.price AS tat
          FROM (SELECT now, CASE WHEN t.kind = 0 THEN 0 ELSE LEAST(GREATEST(t.a - now, 0), q.capacity) END AS debt
                FROM (SELECT coalesce($6::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000)
                             AS now) AS moment) AS found) AS decided
)
FROM (SELECT *
      FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[])
           WITH ORDINALITY AS asked (key, interval, capacity, price, n, place)
      ORDER BY key) AS q
WHERE t.key = q.key AND (t.kind = 0 OR t.kind = 1 AND t.b = q.interval AND t.e = q.capacity / q.interval)
RETURNING q.place, false, t.c
