-- wrk's part of the benchmarks: `wrk -s post.lua URL -- FILE`. FILE holds one request body per line;
-- they are sent in turn, each by one of eight tenants. The result is one line of JSON.
local TENANTS = 8
local requests = {}
local turn = 0

function init(args)
  for body in io.lines(args[1]) do
    local headers = {
      ["content-type"] = "application/json",
      ["x-weir-tenant-id"] = "tenant-" .. (#requests % TENANTS),
    }
    requests[#requests + 1] = wrk.format("POST", nil, headers, body)
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nresult {"answers":%d,"seconds":%f,"errors":%d,"p50Ms":%f,"p99Ms":%f}\n',
    summary.requests - errors.status,
    summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status,
    latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3
  ))
end
