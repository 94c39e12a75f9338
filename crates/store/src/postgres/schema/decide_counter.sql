-- Part of tidegate.decide: the sliding counter.
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

