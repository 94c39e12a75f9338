-- Token and leaky bucket: "<BdI4ddd" tag, s, n of when it is empty of debt, interval; the excess: units in use that were
-- above the burst when it was lowered; the burst. What an older version wrote ends before the burst, or the excess.

make[BUCKET] = function()
  local function write(e, l, debt, excess)
    if l.b == 0 then return end
    if debt == 0 then return forget(e) end
    local s, n = plus(now_s, now_n, debt)
    if e.k ~= BUCKET or e.s ~= s or e.n ~= n or e.interval ~= l.a or e.excess ~= excess or e.burst ~= l.b then
      e.k, e.s, e.n, e.interval, e.excess, e.burst, e.dirty = BUCKET, s, n, l.a, excess, l.b, true
    end
  end

  -- -> debt in nanoseconds, excess
  local function settle(e, l)
    -- A burst of 0 denies everything and has no debt: what was used stays as it is.
    if e.k == PERMITS and l.b == 0 then forget(e) end
    if not e.k or l.b == 0 then return 0, 0 end
    local capacity = l.a * l.b
    if e.k == BUCKET and e.interval == l.a then
      local debt = ahead(e.s, e.n)
      local excess = debt > 0 and e.excess or 0
      if e.burst == l.b or e.burst == 0 then
        if debt <= capacity then return debt, excess end
        debt = capacity
      else
        debt = capped(debt, e.burst * l.a)
        local part = fmod(debt, l.a)
        local units = (debt - part) / l.a + excess
        excess = less(units + (part > 0 and 1 or 0), l.b)
        debt = (units - excess) * l.a + part
      end
      write(e, l, debt, excess)
      return debt, excess
    end
    local units = used(e)
    local debt, excess = capped(units * l.a, capacity), less(units, l.b)
    write(e, l, debt, excess)
    return debt, excess
  end

  return {
    decode = function(raw)
      local s, n, interval, stop = unpack('<dI4d', raw, 2)
      local excess, burst = 0, 0
      if stop <= #raw then excess, stop = unpack('<d', raw, stop) end
      if stop <= #raw then burst = unpack('<d', raw, stop) end
      return {
        had = #raw, dirty = false, k = BUCKET,
        s = s, n = n, interval = interval, excess = excess, burst = burst,
      }
    end,
    encode = function(e)
      return pack('<BdI4ddd', BUCKET, e.s, e.n, e.interval, e.excess, e.burst)
    end,
    used = function(e)
      local debt = ahead(e.s, e.n)
      if debt == 0 then return 0 end
      if e.burst > 0 then debt = capped(debt, e.burst * e.interval) end
      return div_ceil(debt, e.interval) + e.excess
    end,
    expires = function(e)
      return ahead(e.s, e.n)
    end,
    check = function(e, l, cost)
      local debt = settle(e, l)
      return cost * l.a <= l.a * l.b - debt, pack('<d', debt)
    end,
    charge = function(e, l, cost)
      local debt, excess = settle(e, l)
      write(e, l, debt + cost * l.a, excess)
    end,
    refund = function(e, l, cost)
      local debt, excess = settle(e, l)
      write(e, l, less(debt, cost * l.a), excess)
    end,
  }
end

make[LEAKY] = function()
  return algorithm(BUCKET)
end

