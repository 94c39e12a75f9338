#!lua
-- Decides a batch of operations over all their limits, atomically, by Redis's clock.
--
-- A mirror of crates/algorithms/src/limit: `tests/differential.rs` holds the two together. Lua has
-- only doubles, so an absolute time is a pair (seconds, nanoseconds) and a duration is one number:
-- policies bound every duration below 2^53 ns, where doubles are exact. Products that pass 2^53 are
-- taken apart (`weighted`, `share`). Division goes through math.fmod, which is exact; `%` is not.
--
-- KEYS     every counter the batch touches, once each
-- ARGV[1]  the batch, see wire.rs
-- ARGV[2]  seconds, ARGV[3] nanoseconds: the caller's time; ARGV[4], ARGV[5]: its civil time
--          (tests only)
--
-- States are read on first use, kept in a table, and written once at the end: an error on the way
-- leaves nothing half done. Every key gets a TTL.

local unpack, pack, fmod = struct.unpack, struct.pack, math.fmod
local G = 1000000000
local MARGIN_MS = 10000
local NEVER = math.huge
local CLOCK_SLACK_S = 7200
local BUCKET, FIXED, LOG, COUNTER, SLOTS, CALENDAR = 1, 3, 4, 5, 6, 7
local LEAKY = 2

local now_s, now_n
if ARGV[2] then
  now_s, now_n = tonumber(ARGV[2]), tonumber(ARGV[3])
else
  local time = redis.call('TIME')
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

-- Sliding log: "<Bddi4" tag, window, forgotten, head; then entries "<dI4d" s, n, running total.
-- Entries before `head` have left the window. The newest entry is held apart, because it is the
-- one that changes; `kept` entries are as Redis has them.

local LOG_HEAD, ENTRY = 21, 20

local function log_entry(log, i)
  if i == log.n - 1 then
    return log.s, log.ns, log.total
  end
  local s, n, total = unpack('<dI4d', log.raw, LOG_HEAD + i * ENTRY + 1)
  return s, n, total
end

local function log_new(window)
  return { k = LOG, window = window, forgotten = 0, head = 0, n = 0, raw = string.rep(' ', LOG_HEAD), kept = 0, stored = 0 }
end

local function log_decode(raw)
  local _, window, forgotten, head = unpack('<BddI4', raw)
  local n = (#raw - LOG_HEAD) / ENTRY
  local log = { k = LOG, window = window, forgotten = forgotten, head = head, n = n, raw = raw, kept = n, stored = n }
  log.s, log.ns, log.total = unpack('<dI4d', raw, LOG_HEAD + (n - 1) * ENTRY + 1)
  return log
end

local function log_total(log)
  return log.n > log.head and log.total or log.forgotten
end

-- Puts the newest entry into `raw` if it is not there as it is.
local function log_seal(log)
  if log.kept < log.n then
    log.raw = log.raw:sub(1, LOG_HEAD + (log.n - 1) * ENTRY) .. pack('<dI4d', log.s, log.ns, log.total)
  end
end

local function log_push(log, units)
  local total = log_total(log) + units
  if log.n > log.head and ago(log.s, log.ns) == 0 then
    log.total = total
    if log.kept > log.n - 1 then log.kept = log.n - 1 end
    return
  end
  if log.n > 0 then log_seal(log) end
  log.n = log.n + 1
  log.s, log.ns, log.total = now_s, now_n, total
end

local function log_no_later_than_now(log)
  local first = log.n
  while first > log.head do
    local s, n = log_entry(log, first - 1)
    if ahead(s, n) == 0 then break end
    first = first - 1
  end
  if first == log.n then return false end
  local parts = { log.raw:sub(1, LOG_HEAD + first * ENTRY) }
  for i = first, log.n - 2 do
    local _, _, total = log_entry(log, i)
    parts[#parts + 1] = pack('<dI4d', now_s, now_n, total)
  end
  log.raw = table.concat(parts)
  log.s, log.ns = now_s, now_n
  if log.kept > first then log.kept = first end
  return true
end

local function log_forget(log)
  local changed = false
  while log.head < log.n do
    local s, n, total = log_entry(log, log.head)
    if ago(s, n) < log.window then break end
    log.forgotten, log.head, changed = total, log.head + 1, true
  end
  return changed
end

local function log_used(log)
  local low, high = log.head, log.n
  while low < high do
    local middle = math.floor((low + high) / 2)
    local s, n = log_entry(log, middle)
    if ago(s, n) >= log.window then low = middle + 1 else high = middle end
  end
  local forgotten = log.forgotten
  if low > log.head then
    local _, _, total = log_entry(log, low - 1)
    forgotten = total
  end
  return log_total(log) - forgotten
end

-- The time of the entry with whose leaving at least `units` will have left.
local function log_frees(log, units)
  local enough, low, high = log.forgotten + units, log.head, log.n
  while low < high do
    local middle = math.floor((low + high) / 2)
    local _, _, total = log_entry(log, middle)
    if total < enough then low = middle + 1 else high = middle end
  end
  return log_entry(log, low < log.n and low or log.n - 1)
end

local function log_take_back(log, units)
  local keep = log_total(log) - units
  if keep < log.forgotten then keep = log.forgotten end
  while log.n > log.head do
    local s, n, total = log.s, log.ns, log.total
    local before = log.forgotten
    if log.n - 1 > log.head then
      local _, _, earlier = log_entry(log, log.n - 2)
      before = earlier
    end
    if before < keep then
      if keep < total then log.total = keep end
      if log.kept > log.n - 1 then log.kept = log.n - 1 end
      return
    end
    log.n = log.n - 1
    if log.kept > log.n then log.kept = log.n end
    if log.n > log.head then
      log.s, log.ns, log.total = unpack('<dI4d', log.raw, LOG_HEAD + (log.n - 1) * ENTRY + 1)
    end
  end
end

-- Permits: "<Bd" tag, units; then permits "<dI4I4c8" s, n, units, id, in the order they lapse.

local SLOTS_HEAD, PERMIT = 9, 24

local function permit_at(held, i)
  local s, n, units = unpack('<dI4I4', held.raw, i * PERMIT + 1)
  return s, n, units
end

local function permits_insert(held, s, n, units, id)
  local at = #held.raw / PERMIT
  while at > 0 do
    local os, on = permit_at(held, at - 1)
    if os < s or (os == s and on <= n) then break end
    at = at - 1
  end
  held.raw = held.raw:sub(1, at * PERMIT) .. pack('<dI4I4c8', s, n, units, id) .. held.raw:sub(at * PERMIT + 1)
  held.units = held.units + units
end

local function permits_remove(held, id)
  local from = 1
  while true do
    local found = held.raw:find(id, from, true)
    if not found then return nil end
    if fmod(found - 1, PERMIT) == 16 then
      local at = (found - 17) / PERMIT
      local _, _, units = permit_at(held, at)
      held.raw = held.raw:sub(1, at * PERMIT) .. held.raw:sub((at + 1) * PERMIT + 1)
      held.units = held.units - units
      return units
    end
    from = found + 1
  end
end

local function permits_lapse(held, lease)
  local changed, count = false, #held.raw / PERMIT
  local first = count
  local latest_s, latest_n = plus(now_s, now_n, lease)
  while first > 0 do
    local s, n = permit_at(held, first - 1)
    if s < latest_s or (s == latest_s and n <= latest_n) then break end
    first = first - 1
  end
  if first < count then
    local parts = { held.raw:sub(1, first * PERMIT) }
    for i = first, count - 1 do
      local _, _, units = permit_at(held, i)
      parts[#parts + 1] = pack('<dI4I4c8', latest_s, latest_n, units, held.raw:sub(i * PERMIT + 17, i * PERMIT + 24))
    end
    held.raw, changed = table.concat(parts), true
  end
  local gone = 0
  while gone < count do
    local s, n, units = permit_at(held, gone)
    if ahead(s, n) > 0 then break end
    held.units, gone = held.units - units, gone + 1
  end
  if gone > 0 then
    held.raw, changed = held.raw:sub(gone * PERMIT + 1), true
  end
  return changed
end

local function permits_expire(held)
  if #held.raw == 0 then return 0 end
  return ahead(permit_at(held, #held.raw / PERMIT - 1))
end

local function permits_free(held, units)
  local freed = 0
  for i = 0, #held.raw / PERMIT - 1 do
    local s, n, some = permit_at(held, i)
    freed = freed + some
    if freed >= units then return ahead(s, n) end
  end
  return permits_expire(held)
end

-- Sliding counter ------------------------------------------------------------------------------

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

-- min(length, floor(rest x length / weight))
local function share(rest, seconds, weight)
  if weight < 1 then weight = 1 end
  local a = rest * seconds
  local r1 = fmod(a, weight)
  local b = r1 * 32000
  local r2 = fmod(b, weight)
  local c = r2 * 31250
  local total = (a - r1) / weight * G + (b - r2) / weight * 31250 + div(c, weight)
  local length = seconds * G
  return total < length and total or length
end

local function counter_elapsed(start, seconds)
  local elapsed, length = ago(start, 0), seconds * G
  return elapsed < length and elapsed or length
end

local function counter_estimate(start, previous, current, seconds)
  return weighted(previous, seconds * G - counter_elapsed(start, seconds), seconds) + current
end

-- States ---------------------------------------------------------------------------------------

local function decode(raw)
  local k = raw:byte(1)
  if k == BUCKET then
    local _, s, n, interval = unpack('<BdI4d', raw)
    return { k = k, s = s, n = n, interval = interval }
  elseif k == FIXED or k == CALENDAR then
    local _, stop, count, span = unpack('<Bddd', raw)
    return { k = k, stop = stop, count = count, span = span }
  elseif k == COUNTER then
    local _, start, previous, current, seconds = unpack('<Bdddd', raw)
    return { k = k, start = start, previous = previous, current = current, seconds = seconds }
  elseif k == LOG then
    return log_decode(raw)
  elseif k == SLOTS then
    local _, units = unpack('<Bd', raw)
    return { k = k, units = units, raw = raw:sub(SLOTS_HEAD + 1) }
  end
  error('unknown state ' .. tostring(k))
end

-- Units in use now, under the parameters with which the state was written.
local function used(state)
  local k = state and state.k
  if k == BUCKET then
    return div_ceil(ahead(state.s, state.n), state.interval)
  elseif k == FIXED then
    return ahead(state.stop, 0) > 0 and state.count or 0
  elseif k == CALENDAR then
    return ahead_wall(state.stop) > 0 and state.count or 0
  elseif k == COUNTER then
    local windows = div(ago(state.start, 0), state.seconds * G)
    if windows == 0 then
      return counter_estimate(state.start, state.previous, state.current, state.seconds)
    elseif windows == 1 then
      return counter_estimate(state.start + state.seconds, state.current, 0, state.seconds)
    end
  elseif k == LOG then
    return log_used(state)
  end
  return 0
end

local function capped(units, limit)
  return units < limit and units or limit
end

-- Limits: check(entry, limit, cost) -> allowed, remaining, wait, reset, delay, flags
-- (wait: 0 none, NEVER; flags: 2 adds one window to the wait, 4 one to the reset).
-- An entry is { st = state or nil, had = whether Redis has the key, dirty = to be written }.

-- A state that says no more than an absent one would is forgotten at once.
local function forget(e)
  e.st, e.dirty = nil, true
end

local function bucket_write(e, l, debt)
  if debt == 0 then return forget(e) end
  local s, n = plus(now_s, now_n, debt)
  local state = e.st
  if not state or state.k ~= BUCKET then
    e.st, e.dirty = { k = BUCKET, s = s, n = n, interval = l.a }, true
  elseif state.s ~= s or state.n ~= n or state.interval ~= l.a then
    state.s, state.n, state.interval, e.dirty = s, n, l.a, true
  end
end

local function bucket_settle(e, l)
  local state = e.st
  if not state then return 0 end
  local debt
  if state.k == BUCKET and state.interval == l.a then
    debt = ahead(state.s, state.n)
  else
    debt = used(state) * l.a
  end
  local capacity = l.a * l.b
  if state.interval ~= l.a or debt > capacity then
    if debt > capacity then debt = capacity end
    bucket_write(e, l, debt)
  end
  return debt
end

local function bucket_check(e, l, cost)
  local debt = bucket_settle(e, l)
  local room, price = l.a * l.b - debt, cost * l.a
  if price <= room then
    local delay = (l.k == LEAKY and cost > 0) and debt or 0
    return true, div(room - price, l.a), 0, debt + price, delay, 0
  end
  return false, div(room, l.a), price - room, debt, 0, 0
end

local function window_write(e, l, stop, count)
  if count == 0 then return forget(e) end
  e.st, e.dirty = { k = l.k, stop = stop, count = count, span = l.b }, true
end

-- What another window or algorithm had counted is taken over once, so that its wait holds.
local function window_take_over(e, l, stop)
  local count = capped(used(e.st), l.a)
  if e.st then window_write(e, l, stop, count) end
  return stop, count
end

local function fixed_settle(e, l)
  local state = e.st
  if state and state.k == FIXED and state.span == l.b then
    local left = ahead(state.stop, 0)
    if left >= 1 and left <= l.b * G then
      return state.stop, capped(state.count, l.a)
    end
  end
  return window_take_over(e, l, (div(now_s, l.b) + 1) * l.b)
end

-- A calendar limit carries its period's longest span and three consecutive ends of periods as the
-- caller's clock sees them; the store's clock picks. Beyond them, the last span repeats.
local function calendar_settle(e, l)
  local state = e.st
  if state and state.k == CALENDAR and state.span == l.b then
    local left = ahead_wall(state.stop)
    if left >= 1 and left <= l.b then
      return state.stop, capped(state.count, l.a)
    end
  end
  local stop = l.c > wall_s and l.c or l.d > wall_s and l.d or l.e
  while stop <= wall_s do
    stop = stop + (l.e - l.d)
  end
  return window_take_over(e, l, stop)
end

local function window_check(stop, count, l, cost)
  local left, wanted = l.k == CALENDAR and ahead_wall(stop) or ahead(stop, 0), count + cost
  if wanted <= l.a then
    return true, l.a - wanted, 0, wanted == 0 and 0 or left, 0, 0
  end
  return false, l.a > count and l.a - count or 0, left, left, 0, 0
end

local function log_settle(e, l)
  local log = e.st
  if not log or log.k ~= LOG then
    local units = capped(used(log), l.a)
    if log then forget(e) end
    if units == 0 then return nil end
    log = log_new(l.b)
    log_push(log, units)
    e.st = log
  end
  if log_no_later_than_now(log) then e.dirty = true end
  -- First under the window that it was written under: what has expired stays expired.
  if log_forget(log) then e.dirty = true end
  if log.window ~= l.b then
    log.window, e.dirty = l.b, true
    log_forget(log)
  end
  if log.n == log.head then
    forget(e)
    return nil
  end
  return log
end

local function log_check(e, l, cost)
  local log = log_settle(e, l)
  if not log then
    return true, l.a - cost, 0, cost == 0 and 0 or l.b, 0, 0
  end
  local spent = log_total(log) - log.forgotten
  local s, n = plus(log.s, log.ns, l.b)
  local reset, wanted = ahead(s, n), spent + cost
  if wanted <= l.a then
    return true, l.a - wanted, 0, cost == 0 and reset or l.b, 0, 0
  end
  s, n = log_frees(log, wanted - l.a)
  s, n = plus(s, n, l.b)
  return false, l.a > spent and l.a - spent or 0, ahead(s, n), reset, 0, 0
end

local function counter_write(e, l, start, previous, current)
  if previous == 0 and current == 0 then return forget(e) end
  e.st = { k = COUNTER, start = start, previous = previous, current = current, seconds = l.b }
  e.dirty = true
end

local function counter_settle(e, l)
  local state = e.st
  local start = now_s - fmod(now_s, l.b)
  if state and state.k == COUNTER and state.seconds == l.b and state.start <= start then
    if state.start == start then return start, state.previous, state.current end
    if state.start + l.b == start then return start, state.current, 0 end
    return start, 0, 0
  end
  local current = capped(used(state), l.a)
  if state then counter_write(e, l, start, 0, current) end
  return start, 0, current
end

local function counter_reset(left, previous, current)
  if current > 0 then return left, 4 end
  if previous > 0 then return left, 0 end
  return 0, 0
end

local function counter_check(e, l, cost)
  local start, previous, current = counter_settle(e, l)
  local length, elapsed = l.b * G, counter_elapsed(start, l.b)
  local left = length - elapsed
  local estimate = weighted(previous, left, l.b) + current
  if estimate + cost <= l.a then
    local reset, flags
    if current + cost == 0 then
      reset, flags = counter_reset(left, previous, 0)
    else
      reset, flags = left, 4
    end
    return true, l.a - estimate - cost, 0, reset, 0, flags
  end
  local remaining = l.a > estimate and l.a - estimate or 0
  local reset, flags = counter_reset(left, previous, current)
  local wait
  if current + cost <= l.a then
    wait = (length - share(l.a - current - cost, l.b, previous)) - elapsed
    if wait < 0 then wait = 0 end
  else
    -- left + (length - share): the length is added by the caller, who can count beyond 2^53.
    wait, flags = left - share(l.a - cost, l.b, current), flags + 2
  end
  return false, remaining, wait, reset, 0, flags
end

local function slots_settle(e, l)
  local held = e.st
  if not held then return nil end
  if held.k ~= SLOTS then
    forget(e)
    return nil
  end
  if permits_lapse(held, l.b) then e.dirty = true end
  if #held.raw == 0 then
    forget(e)
    return nil
  end
  return held
end

local function slots_check(e, l, cost)
  local held = slots_settle(e, l)
  if not held then
    return true, l.a - cost, 0, cost == 0 and 0 or l.b, 0, 0
  end
  local reset, wanted = permits_expire(held), held.units + cost
  if wanted <= l.a then
    if cost > 0 and reset < l.b then reset = l.b end
    return true, l.a - wanted, 0, reset, 0, 0
  end
  local remaining = l.a > held.units and l.a - held.units or 0
  return false, remaining, permits_free(held, wanted - l.a), reset, 0, 0
end

local function room(e, l, cost)
  local k = l.k
  if k == LOG then return log_check(e, l, cost) end
  if k == BUCKET or k == LEAKY then return bucket_check(e, l, cost) end
  if k == COUNTER then return counter_check(e, l, cost) end
  if k == SLOTS then return slots_check(e, l, cost) end
  local stop, count
  if k == FIXED then
    stop, count = fixed_settle(e, l)
  else
    stop, count = calendar_settle(e, l)
  end
  return window_check(stop, count, l, cost)
end

local function check(e, l, cost)
  local possible = cost <= l.quota
  local allowed, remaining, wait, reset, delay, flags = room(e, l, possible and cost or 0)
  if cost == 0 then
    allowed = true
  elseif not possible then
    allowed, wait = false, NEVER
  end
  return allowed, remaining, wait, reset, delay, flags
end

local function charge(e, l, cost, permit)
  local k = l.k
  if cost == 0 then return end
  if k == BUCKET or k == LEAKY then
    bucket_write(e, l, bucket_settle(e, l) + cost * l.a)
  elseif k == FIXED then
    local stop, count = fixed_settle(e, l)
    window_write(e, l, stop, count + cost)
  elseif k == CALENDAR then
    local stop, count = calendar_settle(e, l)
    window_write(e, l, stop, count + cost)
  elseif k == LOG then
    local log = log_settle(e, l)
    if not log then
      log = log_new(l.b)
      e.st = log
    end
    log_push(log, cost)
    e.dirty = true
  elseif k == COUNTER then
    local start, previous, current = counter_settle(e, l)
    counter_write(e, l, start, previous, current + cost)
  else
    local held = slots_settle(e, l)
    if not held then
      held = { k = k, units = 0, raw = '' }
      e.st = held
    end
    local s, n = plus(now_s, now_n, l.b)
    permits_insert(held, s, n, cost, permit)
    e.dirty = true
  end
end

local function less(a, b)
  return a > b and a - b or 0
end

local function refund(e, l, cost)
  local k = l.k
  if not e.st or k == SLOTS then return end
  if k == BUCKET or k == LEAKY then
    bucket_write(e, l, less(bucket_settle(e, l), cost * l.a))
  elseif k == FIXED then
    local stop, count = fixed_settle(e, l)
    window_write(e, l, stop, less(count, cost))
  elseif k == CALENDAR then
    local stop, count = calendar_settle(e, l)
    window_write(e, l, stop, less(count, cost))
  elseif k == LOG then
    local log = log_settle(e, l)
    if log then
      log_take_back(log, cost)
      e.dirty = true
      if log.n == log.head then e.st = nil end
    end
  else
    local start, previous, current = counter_settle(e, l)
    local from_current = capped(cost, current)
    counter_write(e, l, start, less(previous, cost - from_current), current - from_current)
  end
end

local function renew(e, l, permit)
  local held = slots_settle(e, l)
  local units = held and permits_remove(held, permit)
  if not units then return false end
  local s, n = plus(now_s, now_n, l.b)
  permits_insert(held, s, n, units, permit)
  e.dirty = true
  return true
end

local function release(e, l, permit)
  local held = slots_settle(e, l)
  if not held or not permits_remove(held, permit) then return false end
  e.dirty = true
  if #held.raw == 0 then e.st = nil end
  return true
end

-- Writing back ---------------------------------------------------------------------------------

-- Nanoseconds until the state says no more than an absent one would.
local function expires(state)
  local k = state.k
  if k == BUCKET then
    return ahead(state.s, state.n)
  elseif k == LOG then
    return state.n > state.head and ahead(plus(state.s, state.ns, state.window)) or 0
  elseif k == SLOTS then
    return permits_expire(state)
  elseif k == COUNTER then
    if state.current > 0 then return ahead(state.start + 2 * state.seconds, 0) end
    return state.previous > 0 and ahead(state.start + state.seconds, 0) or 0
  end
  local slack = k == CALENDAR and CLOCK_SLACK_S or 0
  return state.count > 0 and ahead(state.stop + slack, 0) or 0
end

local function write_log(key, log, ttl)
  log_seal(log)
  local n, kept = log.n, log.kept
  local body = log.raw:sub(LOG_HEAD + 1, LOG_HEAD + n * ENTRY)
  if log.head >= 16 and log.head * 2 >= n then
    body, n, log.head, kept = body:sub(log.head * ENTRY + 1), n - log.head, 0, 0
  end
  local head = pack('<BddI4', LOG, log.window, log.forgotten, log.head)
  -- A long log is patched, so that a replica is not sent all of it for every decision.
  if #body > 4096 and n >= log.stored and kept > 0 then
    redis.call('SETRANGE', key, 0, head)
    redis.call('SETRANGE', key, LOG_HEAD + kept * ENTRY, body:sub(kept * ENTRY + 1))
    redis.call('PEXPIRE', key, ttl)
  else
    redis.call('SET', key, head .. body, 'PX', ttl)
  end
end

local function write(key, state, ttl)
  local k, raw = state.k, nil
  if k == LOG then return write_log(key, state, ttl) end
  if k == BUCKET then
    raw = pack('<BdI4d', k, state.s, state.n, state.interval)
  elseif k == FIXED or k == CALENDAR then
    raw = pack('<Bddd', k, state.stop, state.count, state.span)
  elseif k == COUNTER then
    raw = pack('<Bdddd', k, state.start, state.previous, state.current, state.seconds)
  else
    raw = pack('<Bd', k, state.units) .. state.raw
  end
  redis.call('SET', key, raw, 'PX', ttl)
end

-- The batch ------------------------------------------------------------------------------------

local batch, at = ARGV[1], 1
local entries, limits, out = {}, {}, {}

local count
count, at = unpack('<I2', batch, at)
for i = 1, count do
  local l = {}
  l.k, l.a, l.b, l.c, l.d, l.e, at = unpack('<Bddddd', batch, at)
  l.quota = (l.k == BUCKET or l.k == LEAKY) and l.b or l.a
  limits[i] = l
end

local function entry(i)
  local e = entries[i]
  if not e then
    local raw = redis.call('GET', KEYS[i])
    e = { st = raw and decode(raw) or nil, had = raw and true or false, dirty = false }
    if e.st and expires(e.st) == 0 then
      forget(e)
    end
    entries[i] = e
  end
  return e
end

local function report(allowed, remaining, wait, reset, delay, flags)
  out[#out + 1] = pack('<BI4ddd', (allowed and 1 or 0) + flags, remaining, wait, reset, delay)
end

local function decide(spend, permit, charges)
  local allowed, verdicts = true, {}
  for i = 1, #charges do
    local c = charges[i]
    -- Charges of one key are one spend: a later one is judged as if the earlier had been made.
    local cost = c.cost
    for j = 1, i - 1 do
      if charges[j].e == c.e and verdicts[j][1] then cost = cost + charges[j].cost end
    end
    local v = { check(c.e, c.l, cost) }
    verdicts[i] = v
    if c.binding == 1 and not v[1] then allowed = false end
  end
  out[#out + 1] = allowed and '\1' or '\0'
  for i = 1, #charges do
    local c, v = charges[i], verdicts[i]
    if v[1] and not allowed then
      report(check(c.e, c.l, 0))
    else
      if v[1] and spend then charge(c.e, c.l, c.cost, permit) end
      report(v[1], v[2], v[3], v[4], v[5], v[6])
    end
  end
end

count, at = unpack('<I2', batch, at)
for _ = 1, count do
  local kind, permit, n
  kind, permit, n, at = unpack('<Bc8I2', batch, at)
  local charges = {}
  for i = 1, n do
    local l, key, cost, binding
    l, key, cost, binding, at = unpack('<I2I2I4B', batch, at)
    charges[i] = { l = limits[l], e = entry(key), cost = cost, binding = binding }
  end
  if kind <= 2 then
    decide(kind == 1, permit, charges)
  elseif kind == 3 then
    for i = 1, n do refund(charges[i].e, charges[i].l, charges[i].cost) end
  else
    local change = kind == 4 and renew or release
    out[#out + 1] = change(charges[1].e, charges[1].l, permit) and '\1' or '\0'
  end
end

for i, e in pairs(entries) do
  if e.dirty then
    local left = e.st and expires(e.st) or 0
    if left > 0 then
      write(KEYS[i], e.st, div_ceil(left, 1000000) + MARGIN_MS)
    elseif e.had then
      redis.call('DEL', KEYS[i])
    end
  end
end
return table.concat(out)
