-- A token bucket as GCRA on one key. ARGV: burst = count per period, period in seconds.
-- Returns admitted (0 or 1) and microseconds until the next unit.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local burst, period = tonumber(ARGV[1]), tonumber(ARGV[2]) * 1000000
local interval = period / burst
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local next_tat = tat + interval
if next_tat - now > period then
  return { 0, next_tat - now - period }
end
redis.call('SET', KEYS[1], string.format('%.0f', next_tat), 'PX', math.ceil((next_tat - now) / 1000) + 1)
return { 1, 0 }
