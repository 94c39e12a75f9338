-- Token and leaky bucket: "<BdI4d" tag, s, n of when it is empty of debt, interval; then, if there is any,
-- "<d" the excess: units in use that were above the burst when the limit was lowered

make[BUCKET] = function()
  local function write(e, l, debt, excess)
    if l.b == 0 then return end
    if debt == 0 then return forget(e) end
    local s, n = plus(now_s, now_n, debt)
    if e.k ~= BUCKET or e.s ~= s or e.n ~= n or e.interval ~= l.a or e.excess ~= excess then
      e.k, e.s, e.n, e.interval, e.excess, e.dirty = BUCKET, s, n, l.a, excess, true
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
      if debt > capacity then
        debt = capacity
        write(e, l, debt, excess)
      end
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
      local excess = stop <= #raw and unpack('<d', raw, stop) or 0
      return { had = #raw, dirty = false, k = BUCKET, s = s, n = n, interval = interval, excess = excess }
    end,
    encode = function(e)
      local raw = pack('<BdI4d', BUCKET, e.s, e.n, e.interval)
      return e.excess > 0 and raw .. pack('<d', e.excess) or raw
    end,
    used = function(e)
      local debt = ahead(e.s, e.n)
      return debt > 0 and div_ceil(debt, e.interval) + e.excess or 0
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

