-- Sliding counter: "<Bdddd" tag, start of its window, previous count, current count, seconds -------

make[COUNTER] = function()
  -- ceil(previous x uncovered / length), in base 10^9 digits so that nothing passes 2^53.
  local function weighted(previous, uncovered, seconds)
    local un = fmod(uncovered, G)
    local us, ul = (uncovered - un) / G, fmod(un, 32768)
    local t = previous * ((un - ul) / 32768)
    local tl = fmod(t, G)
    local x = tl * 32768 + previous * ul
    local low = fmod(x, G)
    local high = previous * us + (t - tl) / G * 32768 + (x - low) / G
    local rest = fmod(high, seconds)
    return (high - rest) / seconds + ((rest > 0 or low > 0) and 1 or 0)
  end

  local function elapsed_of(start, seconds)
    return capped(ago(start, 0), seconds * G)
  end

  local function estimate_of(start, previous, current, seconds)
    return weighted(previous, seconds * G - elapsed_of(start, seconds), seconds) + current
  end

  local function write(e, l, start, previous, current)
    if previous == 0 and current == 0 then return forget(e) end
    e.k, e.start, e.previous, e.current, e.seconds, e.dirty = COUNTER, start, previous, current, l.b, true
  end

  -- -> start, previous, current
  local function settle(e, l)
    local start = now_s - fmod(now_s, l.b)
    if e.k == COUNTER and e.seconds == l.b and e.start <= start then
      if e.start == start then return start, e.previous, e.current end
      if e.start + l.b == start then return start, e.current, 0 end
      return start, 0, 0
    end
    local current = capped(used(e), l.a)
    if e.k then write(e, l, start, 0, current) end
    return start, 0, current
  end

  return {
    decode = function(raw)
      local start, previous, current, seconds = unpack('<dddd', raw, 2)
      return {
        had = #raw, dirty = false, k = COUNTER,
        start = start, previous = previous, current = current, seconds = seconds,
      }
    end,
    encode = function(e)
      return pack('<Bdddd', COUNTER, e.start, e.previous, e.current, e.seconds)
    end,
    used = function(e)
      local windows = div(ago(e.start, 0), e.seconds * G)
      if windows == 0 then
        return estimate_of(e.start, e.previous, e.current, e.seconds)
      elseif windows == 1 then
        return estimate_of(e.start + e.seconds, e.current, 0, e.seconds)
      end
      return 0
    end,
    expires = function(e)
      if e.current > 0 then return ahead(e.start + 2 * e.seconds, 0) end
      return e.previous > 0 and ahead(e.start + e.seconds, 0) or 0
    end,
    check = function(e, l, cost)
      local start, previous, current = settle(e, l)
      local room = cost == 0 or estimate_of(start, previous, current, l.b) + cost <= l.a
      return room, pack('<ddd', elapsed_of(start, l.b), current, previous)
    end,
    charge = function(e, l, cost)
      local start, previous, current = settle(e, l)
      write(e, l, start, previous, current + cost)
    end,
    refund = function(e, l, cost)
      local start, previous, current = settle(e, l)
      local from_current = capped(cost, current)
      write(e, l, start, less(previous, cost - from_current), current - from_current)
    end,
  }
end

