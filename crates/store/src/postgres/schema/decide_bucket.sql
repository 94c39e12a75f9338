-- Part of tidegate.decide: token and leaky buckets.
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
                    IF st.e IN (0, b) THEN
                        IF debt > capacity THEN
                            debt := capacity; st.a := now_ + debt; changed := true;
                        END IF;
                    ELSE
                        -- What is in use under another burst, as debt below this one and as excess above it.
                        debt := LEAST(debt, st.e * a);
                        part := debt % a;
                        units := debt / a + CASE WHEN debt > 0 THEN st.d ELSE 0 END;
                        st.d := GREATEST(units + (part > 0)::int - b, 0);
                        debt := (units - st.d) * a + part;
                        st.a := now_ + debt; st.e := b; changed := true;
                    END IF;
                ELSE
                    units := tidegate.used(st, now_, wall_);
                    debt := CASE WHEN units > capacity / a THEN capacity ELSE units * a END;
                    -- What is above the burst is kept, for a limit that is raised again.
                    st.kind := 1; st.a := now_ + debt; st.b := a; st.e := b; st.d := GREATEST(units - b, 0);
                    changed := true;
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
                    st.kind := 1; st.a := now_ + debt; st.b := a; st.e := b; changed := true;
                END IF;
                IF changed THEN st.expires := st.a; END IF;

