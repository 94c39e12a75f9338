-- Fixed window and calendar quota: "<Bddd" tag, end, count, span ---------------------------------

make[FIXED] = function(kind)
  local calendar = kind == CALENDAR
  local left_until = calendar and ahead_wall or function(stop) return ahead(stop, 0) end

  -- A calendar limit carries its period's longest span and three consecutive ends of periods as the
  -- caller's clock sees them; the store's clock picks. Beyond them, the last span repeats.
  local function next_stop(l)
    if not calendar then return (div(now_s, l.b) + 1) * l.b end
    local stop = l.c > wall_s and l.c or l.d > wall_s and l.d or l.e
    while stop <= wall_s do
      stop = stop + (l.e - l.d)
    end
    return stop
  end

  local function write(e, l, stop, count)
    if count == 0 then return forget(e) end
    e.k, e.stop, e.count, e.span, e.dirty = kind, stop, count, l.b, true
  end

  -- -> end, count
  local function settle(e, l)
    if e.k == kind and e.span == l.b then
      local left = left_until(e.stop)
      if left >= 1 and left <= (calendar and l.b or l.b * G) then
        return e.stop, capped(e.count, l.a)
      end
    end
    -- What another window or algorithm had counted is taken over once, so that its wait holds.
    local stop, count = next_stop(l), capped(used(e), l.a)
    if e.k then write(e, l, stop, count) end
    return stop, count
  end

  return {
    decode = function(raw)
      local stop, count, span = unpack('<ddd', raw, 2)
      return { had = #raw, dirty = false, k = kind, stop = stop, count = count, span = span }
    end,
    encode = function(e)
      return pack('<Bddd', kind, e.stop, e.count, e.span)
    end,
    used = function(e)
      return left_until(e.stop) > 0 and e.count or 0
    end,
    expires = function(e)
      return e.count > 0 and ahead(e.stop + (calendar and CLOCK_SLACK_S or 0), 0) or 0
    end,
    check = function(e, l, cost)
      local stop, count = settle(e, l)
      return count + cost <= l.a, pack('<dd', left_until(stop), count)
    end,
    charge = function(e, l, cost)
      local stop, count = settle(e, l)
      write(e, l, stop, count + cost)
    end,
    refund = function(e, l, cost)
      local stop, count = settle(e, l)
      write(e, l, stop, less(count, cost))
    end,
  }
end

make[CALENDAR] = make[FIXED]

