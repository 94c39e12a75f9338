-- Counters in PostgreSQL, and the function that decides a batch of operations over them.
--
-- A mirror of crates/algorithms/src/limit in 64-bit nanoseconds: tests/differential.rs holds the two
-- together. Products that pass 64 bits (sliding counter) go through numeric.
--
-- kind  state        a         b            c        d         ticks    totals         ids    e
-- 0     fresh
-- 1     bucket       tat       interval     debt found  excess                                burst
-- 3     window       end       count        seconds
-- 4     log          window    forgotten                       times    running total
-- 5     counter      start     previous     current  seconds
-- 6     permits      units                                     lapses   units each     names
-- 7     calendar     end       count        longest
--
-- Kinds 1 and 2 of a limit are token and leaky buckets; the others are as above.

CREATE TABLE IF NOT EXISTS tidegate.counters (
    key bytea PRIMARY KEY,
    kind smallint NOT NULL DEFAULT 0,
    a bigint NOT NULL DEFAULT 0,
    b bigint NOT NULL DEFAULT 0,
    c bigint NOT NULL DEFAULT 0,
    d bigint NOT NULL DEFAULT 0,
    ticks bigint[],
    totals bigint[],
    ids bigint[],
    expires bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Added by version 3. 0 in a bucket's row: not known.
ALTER TABLE tidegate.counters ADD COLUMN IF NOT EXISTS e bigint NOT NULL DEFAULT 0;

-- ceil(previous x (length - elapsed) / length) + current
CREATE OR REPLACE FUNCTION tidegate.counter_estimate(
    start_ bigint, previous bigint, current_ bigint, length bigint, now_ bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    uncovered bigint := length - LEAST(GREATEST(now_ - start_, 0), length);
BEGIN
    IF previous = 0 OR uncovered = 0 THEN
        RETURN current_;
    END IF;
    RETURN div(previous::numeric * uncovered + (length - 1), length)::bigint + current_;
END $$;

-- min(length, floor(rest x length / weight))
CREATE OR REPLACE FUNCTION tidegate.counter_share(rest bigint, length bigint, weight bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT LEAST(div(rest::numeric * length, GREATEST(weight, 1)), length)::bigint
$$;

-- Units in use, under the parameters with which the state was written.
CREATE OR REPLACE FUNCTION tidegate.used(st tidegate.counters, now_ bigint, wall_ bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    length bigint;
    gone int;
BEGIN
    CASE st.kind
    WHEN 1 THEN
        -- A row without an interval is damaged: the division says so.
        RETURN (LEAST(GREATEST(st.a - now_, 0), CASE WHEN st.e > 0 THEN st.e * st.b END) + st.b - 1) / st.b
            + CASE WHEN st.a > now_ THEN st.d ELSE 0 END;
    WHEN 3 THEN
        RETURN CASE WHEN now_ < st.a THEN st.b ELSE 0 END;
    WHEN 7 THEN
        RETURN CASE WHEN wall_ < st.a THEN st.b ELSE 0 END;
    WHEN 5 THEN
        length := st.d * 1000000000;
        CASE GREATEST(now_ - st.a, 0) / length
        WHEN 0 THEN RETURN tidegate.counter_estimate(st.a, st.b, st.c, length, now_);
        WHEN 1 THEN RETURN tidegate.counter_estimate(st.a + length, st.c, 0, length, now_);
        ELSE RETURN 0;
        END CASE;
    WHEN 4 THEN
        gone := 0;
        WHILE gone < cardinality(st.ticks) AND st.ticks[gone + 1] + st.a <= now_ LOOP
            gone := gone + 1;
        END LOOP;
        RETURN COALESCE(st.totals[cardinality(st.totals)], st.b) - COALESCE(st.totals[gone], st.b);
    ELSE
        RETURN 0;
    END CASE;
END $$;

-- Makes rows for keys that have none, in their order. Decisions then lock them in that order.
CREATE OR REPLACE FUNCTION tidegate.register(keys bytea[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO tidegate.counters (key) SELECT k FROM unnest(keys) k ORDER BY k ON CONFLICT DO NOTHING
$$;

-- Deletes some rows that say nothing any more, of a sample of the table's pages.
CREATE OR REPLACE FUNCTION tidegate.sweep(most int) RETURNS bigint LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM tidegate.counters WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM tidegate.counters TABLESAMPLE SYSTEM (2)
            WHERE expires < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 - 60000000000
            LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
$$;

