-- Part of tidegate.decide: the sliding log.
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

