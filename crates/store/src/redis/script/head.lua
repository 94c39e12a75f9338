#!lua
-- The first part of the script, whose order `mod.rs` has.
--
-- Decides a batch of operations over all their limits, atomically, by Redis's clock.
--
-- A mirror of crates/algorithms/src/limit: `tests/it/differential.rs` holds the two together. Lua has
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

