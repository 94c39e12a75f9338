-- Part of tidegate.decide: fixed windows and calendar quotas.
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

