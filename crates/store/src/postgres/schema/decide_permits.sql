-- Part of tidegate.decide: permits of concurrency limits.
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
