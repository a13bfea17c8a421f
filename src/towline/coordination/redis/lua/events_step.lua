-- COORD-C71, C73: each (session, n) once, no gaps, bounded. Arguments from `at`: session key, owner epoch, base, header,
-- then n and JSON of each event. An entry keeps its events as fields, so that none is decoded here.
local function store_events(at)
  local key, owner_epoch, base, header = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local stored = tonumber(call('HGET', EVENTSEQ, key) or '0')
  if tonumber(owner_epoch) < tonumber(M.owner_epoch) then
    return { 'ok', num(stored), '0', '1' }
  end
  local known = math.max(stored, tonumber(base))
  local fresh, first, last = {}, nil, nil
  for i = at + 4, #ARGV, 2 do
    local n = tonumber(ARGV[i])
    if n > known then
      first = first or n
      last = n
      fresh[#fresh + 1] = 'e'
      fresh[#fresh + 1] = ARGV[i + 1]
    end
  end
  if first and first > known + 1 then
    return { 'ok', num(stored), '1', '0' }
  end
  local count = #fresh / 2
  local pending = tonumber(M.events_pending or '0')
  if count == 0 or pending + count > tonumber(M.event_backlog) then
    return { 'ok', num(stored), '0', '0' }
  end
  call('XADD', EVENTS, '*', 'w', key, 'n', num(last), 'c', num(count), 'h', header, unpack(fresh))
  M.events_pending = num(call('HINCRBY', META, 'events_pending', count))
  call('HSET', EVENTSEQ, key, num(last))
  live_on(EVENTS, EVENTSEQ)
  return { 'ok', num(last), '0', '0' }
end
