-- wrk: POST requests whose client id rotates over BENCH_CLIENTS ids, made before the run so that the
-- generator spends no time on them. Each thread starts at another place of the round.
local threads = 0

function setup(thread)
  thread:set("place", threads)
  threads = threads + 1
end

function init(args)
  local clients = tonumber(os.getenv("BENCH_CLIENTS"))
  local body = os.getenv("BENCH_BODY")
  requests, count = {}, clients
  for id = 1, clients do
    local text = body:gsub("CLIENT", string.format("client-%06d", id))
    requests[id] = wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, text)
  end
  at = math.floor(clients / 2) * place % clients
end

function request()
  at = at % count + 1
  return requests[at]
end
