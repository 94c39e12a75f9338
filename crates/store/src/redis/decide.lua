#!lua
-- Decides a batch of operations over all their limits, atomically, by Redis's clock.
--
-- A mirror of crates/algorithms/src/limit: `tests/differential.rs` holds the two together. Lua has
-- only doubles, so an absolute time is a pair (seconds, nanoseconds) and a duration is one number:
-- policies bound every duration below 2^53 ns, where doubles are exact. Products that pass 2^53 are
-- taken apart (`weighted`). Division goes through math.fmod, which is exact; `%` is not.
--
-- KEYS     every counter the batch touches, once each
-- ARGV[1]  the batch, see wire.rs
-- ARGV[2]  seconds, ARGV[3] nanoseconds: the caller's time; ARGV[4], ARGV[5]: its civil time
--          (tests only)
--
-- States are read on first use, kept in a table, and written once at the end: an error on the way
-- leaves nothing half done. Every key gets a TTL.
--
-- An algorithm is a function that makes its operations, called when a batch first needs them: Redis
-- runs all of this text for each call, and a closure costs as much as a GET.

local unpack, pack, fmod, call = struct.unpack, struct.pack, math.fmod, redis.call
local G = 1000000000
local MARGIN_MS = 10000
local MAX_TTL_MS = 9007199254740992
local NEVER = math.huge
local CLOCK_SLACK_S = 7200
local BUCKET, LEAKY, FIXED, LOG, COUNTER, PERMITS, CALENDAR = 1, 2, 3, 4, 5, 6, 7

local now_s, now_n
if ARGV[2] then
  now_s, now_n = tonumber(ARGV[2]), tonumber(ARGV[3])
else
  local time = call('TIME')
  now_s, now_n = tonumber(time[1]), tonumber(time[2]) * 1000
end
-- Calendar periods go by the civil clock, which here is the same one unless a test says otherwise.
local wall_s, wall_n = now_s, now_n
if ARGV[4] then
  wall_s, wall_n = tonumber(ARGV[4]), tonumber(ARGV[5])
end

-- Time ----------------------------------------------------------------------------------------

local function ahead(s, n)
  local d = (s - now_s) * G + (n - now_n)
  return d > 0 and d or 0
end

local function ahead_wall(s)
  local d = (s - wall_s) * G - wall_n
  return d > 0 and d or 0
end

local function ago(s, n)
  local d = (now_s - s) * G + (now_n - n)
  return d > 0 and d or 0
end

local function plus(s, n, d)
  local rest = fmod(d, G)
  s, n = s + (d - rest) / G, n + rest
  if n >= G then
    return s + 1, n - G
  end
  return s, n
end

local function div(a, b)
  return (a - fmod(a, b)) / b
end

local function div_ceil(a, b)
  local rest = fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- Entries -------------------------------------------------------------------------------------
--
-- An entry is a counter's state, and how that stands to what Redis has: { k = the algorithm that wrote
-- it, or nil if there is no state; had = how many bytes Redis has, if any; dirty = whether it is to be
-- written; and the algorithm's own fields }.
--
-- An algorithm offers, for an entry e, a limit l, and units of cost:
--   decode(raw), encode(e)  its state as Redis has it; write(e, key, ttl) if it is written in parts
--   used(e)                 units in use now, under the parameters with which it was written
--   expires(e)              nanoseconds until it says no more than an absent one would
--   check(e, l, cost)       -> whether there is room, and what the caller is told: what was found,
--                           from which it makes the verdict itself, or the verdict (see `judged`)
--   charge(e, l, cost, permit), refund(e, l, cost)
--   renew(e, l, permit), release(e, l, permit)  -> whether it was held

local make, made = {}, {}

local function algorithm(k)
  local found = made[k]
  if not found then
    found = make[k](k)
    made[k] = found
  end
  return found
end

local function used(e)
  return e.k and algorithm(e.k).used(e) or 0
end

local function capped(units, limit)
  return units < limit and units or limit
end

local function less(a, b)
  return a > b and a - b or 0
end

-- A state that says no more than an absent one would is forgotten at once.
local function forget(e)
  e.k, e.dirty = nil, true
end

-- Makes a check of ask(e, l, cost) -> allowed, remaining, wait, reset, for algorithms whose whole state
-- would be too much to send. Where allowed, the wait is that until a unit beyond those remaining comes back.
local function judged(ask)
  return function(e, l, cost)
    local possible = cost <= l.a
    local allowed, remaining, wait, reset = ask(e, l, possible and cost or 0)
    if not possible then
      allowed, wait = false, NEVER
    elseif cost == 0 then
      allowed = true
    end
    return allowed, pack('<BI4dd', allowed and 1 or 0, remaining, wait, reset)
  end
end

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

-- Permits: "<Bd" tag, units; then permits "<dI4I4c8" s, n, units, id, in the order they lapse ------

make[PERMITS] = function()
  local HEAD, PERMIT = 9, 24

  local function at(e, i)
    local s, n, units = unpack('<dI4I4', e.raw, i * PERMIT + 1)
    return s, n, units
  end

  local function insert(e, lease, units, id)
    local s, n = plus(now_s, now_n, lease)
    local i = #e.raw / PERMIT
    while i > 0 do
      local os, on = at(e, i - 1)
      if os < s or (os == s and on <= n) then break end
      i = i - 1
    end
    e.raw = e.raw:sub(1, i * PERMIT) .. pack('<dI4I4c8', s, n, units, id) .. e.raw:sub(i * PERMIT + 1)
    e.units, e.dirty = e.units + units, true
  end

  -- -> the units that it held, or nil
  local function remove(e, id)
    local from = 1
    while true do
      local found = e.raw:find(id, from, true)
      if not found then return nil end
      if fmod(found - 1, PERMIT) == 16 then
        local i = (found - 17) / PERMIT
        local _, _, units = at(e, i)
        e.raw = e.raw:sub(1, i * PERMIT) .. e.raw:sub((i + 1) * PERMIT + 1)
        e.units, e.dirty = e.units - units, true
        return units
      end
      from = found + 1
    end
  end

  local function lapse(e, lease)
    local count = #e.raw / PERMIT
    local first = count
    local latest_s, latest_n = plus(now_s, now_n, lease)
    while first > 0 do
      local s, n = at(e, first - 1)
      if s < latest_s or (s == latest_s and n <= latest_n) then break end
      first = first - 1
    end
    if first < count then
      local parts = { e.raw:sub(1, first * PERMIT) }
      for i = first, count - 1 do
        local _, _, units = at(e, i)
        local id = e.raw:sub(i * PERMIT + 17, i * PERMIT + 24)
        parts[#parts + 1] = pack('<dI4I4c8', latest_s, latest_n, units, id)
      end
      e.raw, e.dirty = table.concat(parts), true
    end
    local gone = 0
    while gone < count do
      local s, n, units = at(e, gone)
      if ahead(s, n) > 0 then break end
      e.units, gone = e.units - units, gone + 1
    end
    if gone > 0 then
      e.raw, e.dirty = e.raw:sub(gone * PERMIT + 1), true
    end
  end

  -- Whether any are held, afterwards.
  local function settle(e, l)
    if not e.k then return false end
    if e.k == PERMITS then lapse(e, l.b) end
    if e.k ~= PERMITS or #e.raw == 0 then
      forget(e)
      return false
    end
    return true
  end

  local function expires(e)
    if #e.raw == 0 then return 0 end
    return ahead(at(e, #e.raw / PERMIT - 1))
  end

  -- How long until so many units are given back, at the latest.
  local function frees(e, units)
    local freed = 0
    for i = 0, #e.raw / PERMIT - 1 do
      local s, n, some = at(e, i)
      freed = freed + some
      if freed >= units then return ahead(s, n) end
    end
    return expires(e)
  end

  return {
    decode = function(raw)
      local units = unpack('<d', raw, 2)
      return { had = #raw, dirty = false, k = PERMITS, units = units, raw = raw:sub(HEAD + 1) }
    end,
    encode = function(e)
      return pack('<Bd', PERMITS, e.units) .. e.raw
    end,
    -- Permits are not units that come back: another algorithm takes none of them over.
    used = function()
      return 0
    end,
    expires = expires,
    check = judged(function(e, l, cost)
      if not settle(e, l) then
        return true, l.a - cost, 0, cost == 0 and 0 or l.b
      end
      local reset, wanted = expires(e), e.units + cost
      if wanted <= l.a then
        if cost > 0 and reset < l.b then reset = l.b end
        return true, l.a - wanted, 0, reset
      end
      return false, less(l.a, e.units), frees(e, wanted - l.a), reset
    end),
    charge = function(e, l, cost, permit)
      if not settle(e, l) then
        e.k, e.units, e.raw = PERMITS, 0, ''
      end
      insert(e, l.b, cost, permit)
    end,
    refund = function() end,
    renew = function(e, l, permit)
      local units = settle(e, l) and remove(e, permit)
      if not units then return false end
      insert(e, l.b, units, permit)
      return true
    end,
    release = function(e, l, permit)
      if not settle(e, l) or not remove(e, permit) then return false end
      if #e.raw == 0 then e.k = nil end
      return true
    end,
  }
end

-- The batch ------------------------------------------------------------------------------------

local batch, at = ARGV[1], 1
local entries, limits, out, filled = {}, {}, {}, 0

local function tell(what)
  filled = filled + 1
  out[filled] = what
end

local function entry(i)
  local e = entries[i]
  if not e then
    local raw = call('GET', KEYS[i])
    if raw then
      local writer = algorithm(raw:byte(1))
      e = writer.decode(raw)
      if writer.expires(e) == 0 then forget(e) end
    else
      e = { dirty = false }
    end
    entries[i] = e
  end
  return e
end

local function charge(e, l, cost, permit)
  if cost > 0 then l.algorithm.charge(e, l, cost, permit) end
end

-- One charge, as most operations have it.
local function decide(spend, permit, e, l, cost, binding)
  local room, found = l.algorithm.check(e, l, cost)
  if room and spend then charge(e, l, cost, permit) end
  tell((room or binding == 0) and '\1' or '\0')
  tell(found)
end

local function decide_together(spend, permit, charges)
  local allowed = true
  for i = 1, #charges do
    local c = charges[i]
    -- Charges of one key are one spend: a later one is judged as if the earlier had been made.
    local cost = c.cost
    for j = 1, i - 1 do
      if charges[j].e == c.e and charges[j].room then cost = cost + charges[j].cost end
    end
    c.room, c.found = c.l.algorithm.check(c.e, c.l, cost)
    if c.binding == 1 and not c.room then allowed = false end
  end
  tell(allowed and '\1' or '\0')
  for i = 1, #charges do
    local c = charges[i]
    if c.room and not allowed then
      local _
      _, c.found = c.l.algorithm.check(c.e, c.l, 0)
    elseif c.room and spend then
      charge(c.e, c.l, c.cost, permit)
    end
    tell(c.found)
  end
end

local function write(e, key, raw, ttl)
  -- In place if the key lives about as long as it is to: a TTL that is set anew costs more than all else.
  -- An error must not end the script here, between writes.
  local lives = #raw == e.had and redis.pcall('PTTL', key)
  if type(lives) == 'number' and lives >= ttl - MARGIN_MS / 2 and lives <= ttl + MARGIN_MS then
    call('SETRANGE', key, '0', raw)
  else
    call('SET', key, raw, 'PX', ttl)
  end
end

local count
count, at = unpack('<I2', batch, at)
for i = 1, count do
  local l = {}
  l.k, l.a, l.b, l.c, l.d, l.e, at = unpack('<Bddddd', batch, at)
  l.algorithm = algorithm(l.k)
  limits[i] = l
end

count, at = unpack('<I2', batch, at)
for _ = 1, count do
  -- Every operation has a first charge.
  local kind, permit, n, l, key, cost, binding
  kind, permit, n, l, key, cost, binding, at = unpack('<Bc8I2I2I2I4B', batch, at)
  local e = entry(key)
  l = limits[l]
  if kind <= 2 and n == 1 then
    decide(kind == 1, permit, e, l, cost, binding)
  elseif kind <= 3 or kind == 6 then
    local charges = { { l = l, e = e, cost = cost, binding = binding } }
    for i = 2, n do
      l, key, cost, binding, at = unpack('<I2I2I4B', batch, at)
      charges[i] = { l = limits[l], e = entry(key), cost = cost, binding = binding }
    end
    if kind <= 2 then
      decide_together(kind == 1, permit, charges)
    else
      for i = 1, n do
        local c = charges[i]
        if kind == 6 then forget(c.e) elseif c.e.k then c.l.algorithm.refund(c.e, c.l, c.cost) end
      end
    end
  else
    local change = algorithm(PERMITS)[kind == 4 and 'renew' or 'release']
    tell(change(e, l, permit) and '\1' or '\0')
  end
end

-- What cannot be written is found here, before anything is: an error between two writes would leave a part
-- of the batch charged.
for i = 1, #KEYS do
  local e = entry(i)
  if e.dirty and e.k then
    local writer = algorithm(e.k)
    local left = writer.expires(e)
    if left > 0 then
      local ttl = div_ceil(left, 1000000) + MARGIN_MS
      -- Neither is it so if the sum is not a number.
      if not (ttl < MAX_TTL_MS) then error('a stored state makes no sense', 0) end
      e.ttl, e.encoded = ttl, writer.encode and writer.encode(e)
    end
  end
end

for i = 1, #KEYS do
  local key, e = KEYS[i], entry(i)
  if e.dirty then
    if e.encoded then
      write(e, key, e.encoded, e.ttl)
    elseif e.ttl then
      algorithm(e.k).write(e, key, e.ttl)
    elseif e.had then
      call('DEL', key)
    end
  end
end
return table.concat(out)
