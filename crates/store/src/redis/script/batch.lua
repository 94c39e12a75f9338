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
