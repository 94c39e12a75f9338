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

