-- wrk: POST requests whose client id rotates over BENCH_CLIENTS ids (at most 999,999). Each thread starts
-- at another place of the round.
--
-- Nothing slow may stand in setup or init: wrk 4.1 starts its first thread before it calls init for the
-- second, and counts what that thread does meanwhile, but not the time. Making 100,000 requests there
-- showed more replies in a short run than the server had CPU time for. So the request is cut once
-- around the id, and each is put together when it is sent.
local threads = 0

function setup(thread)
  thread:set("place", threads)
  threads = threads + 1
end

function init(args)
  clients = tonumber(os.getenv("BENCH_CLIENTS"))
  at = math.floor(clients / 2) * place % clients
  local body = os.getenv("BENCH_BODY"):gsub("CLIENT", string.rep("#", 13))
  local text = wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, body)
  head, tail = text:match("^(.-)#+(.*)$")
end

function request()
  at = at % clients + 1
  return head .. string.format("client-%06d", at) .. tail
end
