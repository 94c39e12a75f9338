-- Counters in PostgreSQL, and the function that decides a batch of operations over them.
--
-- A mirror of crates/algorithms/src/limit in 64-bit nanoseconds: tests/differential.rs holds the two
-- together. Products that pass 64 bits (sliding counter) go through numeric.
--
-- kind  state        a         b            c        d         ticks    totals         ids
-- 0     fresh
-- 1     bucket       tat       interval     debt found
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
        RETURN (GREATEST(st.a - now_, 0) + st.b - 1) / st.b + CASE WHEN st.a > now_ THEN st.d ELSE 0 END;
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

-- keys      every counter touched, once each, in ascending order
-- lk .. le  limits: kind and numbers
-- ops       1 spend, 2 peek, 3 refund, 4 renew, 5 release; permits; how many charges each
-- cl .. cb  charges: limit, key, cost, whether it binds
-- Returns, per decision: allowed, then per charge allowed, remaining, wait (-1 never; where allowed, that
-- until a unit beyond those remaining comes back), reset, delay;
-- per renewal or release: held. NULL if a key has no row: nothing was charged.
CREATE OR REPLACE FUNCTION tidegate.decide(
    keys bytea[], lk int[], la bigint[], lb bigint[], lc bigint[], ld bigint[], le bigint[],
    ops int[], permits bigint[], counts int[],
    cl int[], ck int[], cc bigint[], cb bool[],
    at_tick bigint, at_wall bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    rows_ tidegate.counters[];
    dirty bool[];
    st tidegate.counters;
    fresh tidegate.counters;
    out_ bigint[] := '{}'; place int := 0;
    now_ bigint; wall_ bigint;
    op int; permit bigint; base int := 0; n int; pass int; i int; j int; x int; l int;
    k int; a bigint; b bigint; quota bigint; cost bigint; asked bigint; possible bool; acting bool;
    changed bool; all_ok bool; held bool;
    debt bigint; capacity bigint; left_ bigint; stop bigint; cnt bigint; wanted bigint;
    start_ bigint; prev bigint; cur bigint; length bigint; elapsed bigint; estimate bigint;
    gone int; total bigint; units bigint; low int; high int; middle int; keep bigint; before bigint;
    v_ok bool[]; v_rem bigint[]; v_wait bigint[]; v_reset bigint[]; v_delay bigint[];
    ok bool; rem bigint; wait_ bigint; reset_ bigint; delay_ bigint;
BEGIN
    SELECT array_agg(s.t), array_agg(false) INTO rows_, dirty FROM (
        SELECT t FROM tidegate.counters t WHERE t.key = ANY (keys) ORDER BY t.key FOR UPDATE
    ) s;
    IF COALESCE(cardinality(rows_), 0) < cardinality(keys) THEN
        RETURN NULL;
    END IF;
    -- After the locks, so that a key's times never run backwards.
    now_ := COALESCE(at_tick, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000);
    wall_ := COALESCE(at_wall, now_);

    FOR o IN 1 .. cardinality(ops) LOOP
        op := ops[o]; permit := permits[o]; n := counts[o];
        all_ok := true; held := false;
        -- Pass 1 checks every charge; pass 2 charges them all or, after a denial, looks again
        -- without this request; pass 3 is for the other operations.
        FOR pass IN (CASE WHEN op <= 2 THEN 1 ELSE 3 END) .. (CASE WHEN op <= 2 THEN 2 ELSE 3 END) LOOP
        FOR i IN base + 1 .. base + n LOOP
            cost := cc[i]; x := ck[i]; l := cl[i];
            acting := false;
            IF pass = 1 THEN
                -- Charges of one key are one spend.
                FOR j IN base + 1 .. i - 1 LOOP
                    IF ck[j] = x AND v_ok[j] THEN cost := cost + cc[j]; END IF;
                END LOOP;
            ELSIF pass = 2 THEN
                CONTINUE WHEN NOT v_ok[i];
                IF NOT all_ok THEN
                    cost := 0;
                ELSE
                    CONTINUE WHEN op = 2 OR cost = 0;
                    acting := true;
                END IF;
            ELSE
                acting := true;
            END IF;
            st := rows_[x]; changed := false;
            IF st.kind <> 0 AND st.expires <= now_ THEN
                fresh.key := st.key; fresh.kind := 0; fresh.expires := 0;
                fresh.a := 0; fresh.b := 0; fresh.c := 0; fresh.d := 0;
                st := fresh; changed := true;
            END IF;
            -- Permits are not refunded but released.
            IF pass = 3 AND (st.kind = 0 OR (op = 3 AND lk[l] = 6)) THEN
                IF changed THEN rows_[x] := st; dirty[x] := true; END IF;
                CONTINUE;
            END IF;
            IF op = 6 THEN
                st.kind := 0; st.a := 0; st.b := 0; st.c := 0; st.d := 0; st.expires := 0;
                st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                rows_[x] := st; dirty[x] := true;
                CONTINUE;
            END IF;
            k := lk[l]; a := la[l]; b := lb[l];
            quota := CASE WHEN k <= 2 THEN b ELSE a END;
            possible := cost <= quota;
            asked := CASE WHEN possible THEN cost ELSE 0 END;
            delay_ := 0; wait_ := 0; ok := true;

            IF k <= 2 THEN ------------------------------------------------ buckets
                capacity := a * b;
                IF b = 0 AND st.kind = 6 THEN
                    st.kind := 0; st.a := 0; st.ticks := NULL; st.totals := NULL; st.ids := NULL; changed := true;
                END IF;
                -- A burst of 0 denies everything and has no debt: what was used stays as it is.
                IF st.kind = 0 OR b = 0 THEN
                    debt := 0;
                ELSIF st.kind = 1 AND st.b = a THEN
                    debt := GREATEST(st.a - now_, 0);
                    IF debt > capacity THEN
                        debt := capacity; st.a := now_ + debt; changed := true;
                    END IF;
                ELSE
                    units := tidegate.used(st, now_, wall_);
                    debt := CASE WHEN units > capacity / a THEN capacity ELSE units * a END;
                    -- What is above the burst is kept, for a limit that is raised again.
                    st.kind := 1; st.a := now_ + debt; st.b := a; st.d := GREATEST(units - b, 0); changed := true;
                    st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                END IF;
                IF NOT acting THEN
                    left_ := capacity - debt;
                    IF asked * a <= left_ THEN
                        rem := (left_ - asked * a) / a; reset_ := debt + asked * a; wait_ := a - left_ % a;
                        IF k = 2 AND asked > 0 THEN delay_ := debt; END IF;
                    ELSE
                        ok := false; rem := left_ / a; wait_ := asked * a - left_; reset_ := debt;
                    END IF;
                ELSIF b > 0 THEN
                    IF debt = 0 THEN st.d := 0; END IF;
                    IF op = 3 THEN
                        debt := CASE WHEN cost > debt / a THEN 0 ELSE debt - cost * a END;
                    ELSE
                        debt := debt + cost * a;
                    END IF;
                    st.kind := 1; st.a := now_ + debt; st.b := a; changed := true;
                END IF;
                IF changed THEN st.expires := st.a; END IF;

            ELSIF k = 3 OR k = 7 THEN ------------------------------------- windows
                left_ := CASE WHEN k = 3 THEN st.a - now_ ELSE st.a - wall_ END;
                IF st.kind = k AND st.c = b AND left_ >= 1
                    AND left_ <= (CASE WHEN k = 3 THEN b * 1000000000 ELSE b END) THEN
                    stop := st.a; cnt := LEAST(st.b, a);
                ELSE
                    IF k = 3 THEN
                        stop := (now_ / (b * 1000000000) + 1) * (b * 1000000000);
                    ELSE
                        stop := (CASE WHEN lc[l] * 1000000000 > wall_ THEN lc[l]
                                      WHEN ld[l] * 1000000000 > wall_ THEN ld[l] ELSE le[l] END) * 1000000000;
                        WHILE stop <= wall_ LOOP
                            stop := stop + (le[l] - ld[l]) * 1000000000;
                        END LOOP;
                    END IF;
                    cnt := LEAST(tidegate.used(st, now_, wall_), a);
                    IF st.kind <> 0 THEN
                        st.kind := k; st.a := stop; st.b := cnt; st.c := b; changed := true;
                        st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                    END IF;
                END IF;
                IF NOT acting THEN
                    left_ := GREATEST(stop - (CASE WHEN k = 3 THEN now_ ELSE wall_ END), 0);
                    wanted := cnt + asked;
                    IF wanted <= a THEN
                        rem := a - wanted; reset_ := CASE WHEN wanted = 0 THEN 0 ELSE left_ END; wait_ := left_;
                    ELSE
                        ok := false; rem := a - cnt; wait_ := left_; reset_ := left_;
                    END IF;
                ELSE
                    cnt := CASE WHEN op = 3 THEN GREATEST(cnt - cost, 0) ELSE cnt + cost END;
                    st.kind := k; st.a := stop; st.b := cnt; st.c := b; changed := true;
                END IF;
                IF changed THEN
                    st.expires := CASE WHEN st.b = 0 THEN 0 WHEN k = 3 THEN st.a
                                       ELSE st.a + 7200000000000 END;
                END IF;

            ELSIF k = 4 THEN ---------------------------------------------- log
                IF st.kind <> 4 THEN
                    units := LEAST(tidegate.used(st, now_, wall_), a);
                    IF st.kind <> 0 THEN changed := true; st.ids := NULL; END IF;
                    st.kind := 0;
                    IF units > 0 THEN
                        st.kind := 4; st.a := b; st.b := 0;
                        st.ticks := ARRAY[now_]; st.totals := ARRAY[units];
                    END IF;
                END IF;
                IF st.kind = 4 THEN
                    n := cardinality(st.ticks);
                    FOR j IN REVERSE n .. 1 LOOP
                        EXIT WHEN st.ticks[j] <= now_;
                        st.ticks[j] := now_; changed := true;
                    END LOOP;
                    gone := 0;
                    WHILE gone < n AND (st.ticks[gone + 1] + st.a <= now_
                                        OR st.ticks[gone + 1] + b <= now_) LOOP
                        gone := gone + 1;
                    END LOOP;
                    IF gone > 0 THEN
                        st.b := st.totals[gone]; changed := true;
                        st.ticks := st.ticks[gone + 1 :]; st.totals := st.totals[gone + 1 :];
                    END IF;
                    IF st.a <> b THEN st.a := b; changed := true; END IF;
                    IF gone = n THEN st.kind := 0; END IF;
                    n := counts[o];
                END IF;
                IF st.kind = 0 THEN
                    st.ticks := NULL; st.totals := NULL; total := 0; units := 0;
                ELSE
                    total := st.totals[cardinality(st.totals)]; units := total - st.b;
                END IF;
                IF NOT acting THEN
                    reset_ := CASE WHEN st.kind = 0 THEN 0
                                   ELSE st.ticks[cardinality(st.ticks)] + b - now_ END;
                    wanted := units + asked;
                    IF wanted <= a THEN
                        rem := a - wanted; reset_ := CASE WHEN asked = 0 THEN reset_ ELSE b END;
                        wait_ := CASE WHEN st.kind = 0 THEN b ELSE st.ticks[1] + b - now_ END;
                    ELSE
                        ok := false; rem := GREATEST(a - units, 0);
                        low := 1; high := cardinality(st.totals);
                        WHILE low < high LOOP
                            middle := (low + high) / 2;
                            IF st.totals[middle] < st.b + wanted - a THEN low := middle + 1; ELSE high := middle; END IF;
                        END LOOP;
                        wait_ := st.ticks[low] + b - now_;
                    END IF;
                ELSIF op = 3 THEN
                    IF st.kind = 4 THEN
                        changed := true;
                        keep := GREATEST(total - cost, st.b);
                        high := cardinality(st.totals);
                        WHILE high > 0 LOOP
                            before := CASE WHEN high > 1 THEN st.totals[high - 1] ELSE st.b END;
                            IF before < keep THEN
                                st.totals[high] := LEAST(keep, st.totals[high]);
                                EXIT;
                            END IF;
                            high := high - 1;
                        END LOOP;
                        st.ticks := st.ticks[1 : high]; st.totals := st.totals[1 : high];
                        IF high = 0 THEN st.kind := 0; END IF;
                    END IF;
                ELSE
                    changed := true;
                    IF st.kind = 0 THEN
                        st.kind := 4; st.a := b; st.b := 0;
                        st.ticks := ARRAY[now_]; st.totals := ARRAY[cost];
                    ELSIF st.ticks[cardinality(st.ticks)] >= now_ THEN
                        st.totals[cardinality(st.totals)] := total + cost;
                    ELSE
                        st.ticks := st.ticks || now_; st.totals := st.totals || (total + cost);
                    END IF;
                END IF;
                IF changed THEN
                    st.expires := CASE WHEN st.kind = 0 THEN 0 ELSE st.ticks[cardinality(st.ticks)] + st.a END;
                END IF;

            ELSIF k = 5 THEN ---------------------------------------------- sliding counter
                length := b * 1000000000; start_ := now_ / length * length;
                IF st.kind = 5 AND st.d = b AND st.a <= start_ THEN
                    IF st.a = start_ THEN prev := st.b; cur := st.c;
                    ELSIF st.a + length = start_ THEN prev := st.c; cur := 0;
                    ELSE prev := 0; cur := 0;
                    END IF;
                ELSE
                    prev := 0; cur := LEAST(tidegate.used(st, now_, wall_), a);
                    IF st.kind <> 0 THEN
                        st.kind := 5; st.a := start_; st.b := 0; st.c := cur; st.d := b; changed := true;
                        st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                    END IF;
                END IF;
                elapsed := LEAST(now_ - start_, length); left_ := length - elapsed;
                IF NOT acting THEN
                    estimate := tidegate.counter_estimate(start_, prev, cur, length, now_);
                    IF estimate + asked <= a THEN
                        rem := a - estimate - asked; cur := cur + asked;
                        units := cur + rem; wanted := 1;
                    ELSE
                        ok := false; rem := GREATEST(a - estimate, 0);
                        units := cur; wanted := asked;
                    END IF;
                    -- Until `wanted` fit beside `units` in this window.
                    IF units + wanted <= a THEN
                        wait_ := GREATEST(length - tidegate.counter_share(a - units - wanted, length, prev) - elapsed, 0);
                    ELSE
                        wait_ := left_ + length - tidegate.counter_share(GREATEST(a - wanted, 0), length, units);
                    END IF;
                    reset_ := CASE WHEN cur > 0 THEN left_ + length WHEN prev > 0 THEN left_ ELSE 0 END;
                ELSE
                    IF op = 3 THEN
                        units := LEAST(cost, cur);
                        cur := cur - units; prev := GREATEST(prev - (cost - units), 0);
                    ELSE
                        cur := cur + cost;
                    END IF;
                    st.kind := 5; st.a := start_; st.b := prev; st.c := cur; st.d := b; changed := true;
                END IF;
                IF changed THEN
                    st.expires := CASE WHEN st.c > 0 THEN st.a + 2 * length
                                       WHEN st.b > 0 THEN st.a + length ELSE 0 END;
                END IF;

            ELSE ---------------------------------------------------------- permits
                IF st.kind NOT IN (0, 6) THEN
                    st.kind := 0; st.ticks := NULL; st.totals := NULL; changed := true;
                END IF;
                IF st.kind = 6 THEN
                    n := cardinality(st.ticks);
                    FOR j IN REVERSE n .. 1 LOOP
                        EXIT WHEN st.ticks[j] <= now_ + b;
                        st.ticks[j] := now_ + b; changed := true;
                    END LOOP;
                    gone := 0;
                    WHILE gone < n AND st.ticks[gone + 1] <= now_ LOOP
                        gone := gone + 1; st.a := st.a - st.totals[gone];
                    END LOOP;
                    IF gone > 0 THEN
                        changed := true; st.ticks := st.ticks[gone + 1 :];
                        st.totals := st.totals[gone + 1 :]; st.ids := st.ids[gone + 1 :];
                    END IF;
                    IF gone = n THEN st.kind := 0; END IF;
                    n := counts[o];
                END IF;
                IF st.kind = 0 THEN
                    st.a := 0; st.ticks := '{}'; st.totals := '{}'; st.ids := '{}';
                END IF;
                reset_ := CASE WHEN st.kind = 0 THEN 0 ELSE st.ticks[cardinality(st.ticks)] - now_ END;
                IF NOT acting THEN
                    wanted := st.a + asked;
                    IF wanted <= a THEN
                        rem := a - wanted; IF asked > 0 THEN reset_ := GREATEST(reset_, b); END IF;
                    ELSE
                        ok := false; rem := GREATEST(a - st.a, 0);
                        units := 0; wait_ := reset_;
                        FOR j IN 1 .. cardinality(st.ticks) LOOP
                            units := units + st.totals[j];
                            IF units >= wanted - a THEN wait_ := st.ticks[j] - now_; EXIT; END IF;
                        END LOOP;
                    END IF;
                ELSE
                    IF op >= 4 THEN
                        j := array_position(st.ids, permit);
                        IF j IS NOT NULL THEN
                            held := true; changed := true; cost := st.totals[j]; st.a := st.a - cost;
                            st.ticks := st.ticks[: j - 1] || st.ticks[j + 1 :];
                            st.totals := st.totals[: j - 1] || st.totals[j + 1 :];
                            st.ids := st.ids[: j - 1] || st.ids[j + 1 :];
                        END IF;
                    END IF;
                    IF op = 1 OR (op = 4 AND held) THEN
                        changed := true;
                        j := cardinality(st.ticks);
                        WHILE j > 0 AND st.ticks[j] > now_ + b LOOP j := j - 1; END LOOP;
                        st.ticks := st.ticks[: j] || (now_ + b) || st.ticks[j + 1 :];
                        st.totals := st.totals[: j] || cost || st.totals[j + 1 :];
                        st.ids := st.ids[: j] || permit || st.ids[j + 1 :];
                        st.a := st.a + cost; st.kind := 6;
                    END IF;
                END IF;
                IF changed THEN
                    st.expires := COALESCE(st.ticks[cardinality(st.ticks)], 0);
                END IF;
                IF cardinality(st.ticks) = 0 THEN
                    st.kind := 0; st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                END IF;
            END IF;

            IF changed THEN
                IF st.expires <= now_ THEN
                    st.kind := 0; st.expires := 0; st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                END IF;
                rows_[x] := st; dirty[x] := true;
            END IF;
            IF NOT acting THEN
                IF cost = 0 THEN
                    IF NOT ok THEN ok := true; wait_ := GREATEST(wait_, 1); END IF;
                ELSIF NOT possible THEN ok := false; wait_ := -1;
                ELSIF NOT ok THEN wait_ := GREATEST(wait_, 1);
                END IF;
                v_ok[i] := ok; v_rem[i] := rem; v_wait[i] := wait_; v_reset[i] := reset_; v_delay[i] := delay_;
                IF pass = 1 AND cb[i] AND NOT ok THEN all_ok := false; END IF;
            END IF;
        END LOOP;
        END LOOP;
        IF op <= 2 THEN
            place := place + 1; out_[place] := all_ok::int;
            FOR i IN base + 1 .. base + n LOOP
                out_[place + 1] := v_ok[i]::int; out_[place + 2] := v_rem[i]; out_[place + 3] := v_wait[i];
                out_[place + 4] := v_reset[i]; out_[place + 5] := v_delay[i]; place := place + 5;
            END LOOP;
        ELSIF op IN (4, 5) THEN
            place := place + 1; out_[place] := held::int;
        END IF;
        base := base + n;
    END LOOP;

    UPDATE tidegate.counters t
    SET kind = r.kind, a = r.a, b = r.b, c = r.c, d = r.d,
        ticks = r.ticks, totals = r.totals, ids = r.ids, expires = r.expires
    FROM unnest(rows_) WITH ORDINALITY AS r (key, kind, a, b, c, d, ticks, totals, ids, expires, at)
    WHERE dirty[r.at] AND t.key = r.key;
    RETURN out_;
END $$;
