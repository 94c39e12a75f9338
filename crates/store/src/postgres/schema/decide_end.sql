-- The end of tidegate.decide: after each limit, each operation, and all of them.
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
        ticks = r.ticks, totals = r.totals, ids = r.ids, expires = r.expires, e = r.e
    FROM unnest(rows_) WITH ORDINALITY AS r (key, kind, a, b, c, d, ticks, totals, ids, expires, e, at)
    WHERE dirty[r.at] AND t.key = r.key;
    RETURN out_;
END $$;
