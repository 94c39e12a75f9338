-- Sliding log: "<BddI4" tag, window, forgotten, head; then entries "<dI4d" s, n, running total ----
--
-- Entries before `head` have left the window. The newest entry is held apart (s, ns, total), because
-- it is the one that changes; `kept` entries are as Redis has them, and `stored` of the `n` it had.

make[LOG] = function()
  local HEAD, ENTRY = 21, 20

  local function at(e, i)
    if i == e.n - 1 then
      return e.s, e.ns, e.total
    end
    local s, n, total = unpack('<dI4d', e.raw, HEAD + i * ENTRY + 1)
    return s, n, total
  end

  local function start(e, window)
    e.k, e.window, e.forgotten, e.head, e.n = LOG, window, 0, 0, 0
    e.raw, e.kept, e.stored, e.dirty = string.rep(' ', HEAD), 0, 0, true
  end

  local function total_of(e)
    return e.n > e.head and e.total or e.forgotten
  end

  -- Puts the newest entry into `raw` if it is not there as it is.
  local function seal(e)
    if e.kept < e.n then
      e.raw = e.raw:sub(1, HEAD + (e.n - 1) * ENTRY) .. pack('<dI4d', e.s, e.ns, e.total)
    end
  end

  local function push(e, units)
    local total = total_of(e) + units
    e.dirty = true
    if e.n > e.head and ago(e.s, e.ns) == 0 then
      e.total, e.kept = total, capped(e.kept, e.n - 1)
      return
    end
    if e.n > 0 then seal(e) end
    e.n = e.n + 1
    e.s, e.ns, e.total = now_s, now_n, total
  end

  local function no_later_than_now(e)
    local first = e.n
    while first > e.head do
      local s, n = at(e, first - 1)
      if ahead(s, n) == 0 then break end
      first = first - 1
    end
    if first == e.n then return end
    local parts = { e.raw:sub(1, HEAD + first * ENTRY) }
    for i = first, e.n - 2 do
      local _, _, total = at(e, i)
      parts[#parts + 1] = pack('<dI4d', now_s, now_n, total)
    end
    e.raw = table.concat(parts)
    e.s, e.ns, e.kept, e.dirty = now_s, now_n, capped(e.kept, first), true
  end

  local function forget_before(e)
    while e.head < e.n do
      local s, n, total = at(e, e.head)
      if ago(s, n) < e.window then break end
      e.forgotten, e.head, e.dirty = total, e.head + 1, true
    end
  end

  -- Whether there is a log, afterwards.
  local function settle(e, l)
    if e.k ~= LOG then
      local units = capped(used(e), l.a)
      if e.k then forget(e) end
      if units == 0 then return false end
      start(e, l.b)
      push(e, units)
    end
    no_later_than_now(e)
    -- First under the window that it was written under: what has expired stays expired.
    forget_before(e)
    if e.window ~= l.b then
      e.window, e.dirty = l.b, true
      forget_before(e)
    end
    if e.n == e.head then
      forget(e)
      return false
    end
    return true
  end

  -- The time of the entry with whose leaving at least `units` will have left.
  local function frees(e, units)
    local enough, low, high = e.forgotten + units, e.head, e.n
    while low < high do
      local middle = math.floor((low + high) / 2)
      local _, _, total = at(e, middle)
      if total < enough then low = middle + 1 else high = middle end
    end
    return at(e, low < e.n and low or e.n - 1)
  end

  local function take_back(e, units)
    local keep = total_of(e) - units
    if keep < e.forgotten then keep = e.forgotten end
    while e.n > e.head do
      local before = e.forgotten
      if e.n - 1 > e.head then
        local _, _, earlier = at(e, e.n - 2)
        before = earlier
      end
      if before < keep then
        e.total, e.kept = capped(keep, e.total), capped(e.kept, e.n - 1)
        return
      end
      e.n = e.n - 1
      e.kept = capped(e.kept, e.n)
      if e.n > e.head then
        e.s, e.ns, e.total = unpack('<dI4d', e.raw, HEAD + (e.n - 1) * ENTRY + 1)
      end
    end
  end

  return {
    decode = function(raw)
      local e = { had = #raw, dirty = false, k = LOG, raw = raw }
      e.window, e.forgotten, e.head = unpack('<ddI4', raw, 2)
      e.n = (#raw - HEAD) / ENTRY
      e.kept, e.stored = e.n, e.n
      e.s, e.ns, e.total = unpack('<dI4d', raw, HEAD + (e.n - 1) * ENTRY + 1)
      return e
    end,
    write = function(e, key, ttl)
      seal(e)
      local n, kept = e.n, e.kept
      local body = e.raw:sub(HEAD + 1, HEAD + n * ENTRY)
      if e.head >= 16 and e.head * 2 >= n then
        body, n, e.head, kept = body:sub(e.head * ENTRY + 1), n - e.head, 0, 0
      end
      local head = pack('<BddI4', LOG, e.window, e.forgotten, e.head)
      -- A long log is patched, so that a replica is not sent all of it for every decision.
      if #body > 4096 and n >= e.stored and kept > 0 then
        call('SETRANGE', key, 0, head)
        call('SETRANGE', key, HEAD + kept * ENTRY, body:sub(kept * ENTRY + 1))
        call('PEXPIRE', key, ttl)
      else
        call('SET', key, head .. body, 'PX', ttl)
      end
    end,
    used = function(e)
      local low, high = e.head, e.n
      while low < high do
        local middle = math.floor((low + high) / 2)
        local s, n = at(e, middle)
        if ago(s, n) >= e.window then low = middle + 1 else high = middle end
      end
      local forgotten = e.forgotten
      if low > e.head then
        local _, _, total = at(e, low - 1)
        forgotten = total
      end
      return total_of(e) - forgotten
    end,
    expires = function(e)
      return e.n > e.head and ahead(plus(e.s, e.ns, e.window)) or 0
    end,
    check = judged(function(e, l, cost)
      if not settle(e, l) then
        return true, l.a - cost, l.b, cost == 0 and 0 or l.b
      end
      local spent = total_of(e) - e.forgotten
      local reset, wanted = ahead(plus(e.s, e.ns, l.b)), spent + cost
      if wanted <= l.a then
        local s, n = at(e, e.head)
        return true, l.a - wanted, ahead(plus(s, n, l.b)), cost == 0 and reset or l.b
      end
      local s, n = frees(e, wanted - l.a)
      return false, less(l.a, spent), ahead(plus(s, n, l.b)), reset
    end),
    charge = function(e, l, cost)
      if not settle(e, l) then start(e, l.b) end
      push(e, cost)
    end,
    refund = function(e, l, cost)
      if not settle(e, l) then return end
      take_back(e, cost)
      e.dirty = true
      if e.n == e.head then e.k = nil end
    end,
  }
end

