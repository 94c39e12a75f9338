-- The beginning of tidegate.decide, whose parts `mod.rs` puts together: locks, and what holds for all limits.
--
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
    part bigint; gone int; total bigint; units bigint; low int; high int; middle int; keep bigint; before bigint;
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
                fresh.a := 0; fresh.b := 0; fresh.c := 0; fresh.d := 0; fresh.e := 0;
                st := fresh; changed := true;
            END IF;
            -- Permits are not refunded but released.
            IF pass = 3 AND (st.kind = 0 OR (op = 3 AND lk[l] = 6)) THEN
                IF changed THEN rows_[x] := st; dirty[x] := true; END IF;
                CONTINUE;
            END IF;
            IF op = 6 THEN
                st.kind := 0; st.a := 0; st.b := 0; st.c := 0; st.d := 0; st.e := 0; st.expires := 0;
                st.ticks := NULL; st.totals := NULL; st.ids := NULL;
                rows_[x] := st; dirty[x] := true;
                CONTINUE;
            END IF;
            k := lk[l]; a := la[l]; b := lb[l];
            quota := CASE WHEN k <= 2 THEN b ELSE a END;
            possible := cost <= quota;
            asked := CASE WHEN possible THEN cost ELSE 0 END;
            delay_ := 0; wait_ := 0; ok := true;

