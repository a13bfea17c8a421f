-- Registrations, latest statuses and milliseconds since the last sign of life of those that are alive or said goodbye, sorted by the caller.
local reply = { 'ok' }
for _, id in ipairs(call('HKEYS', WORKERS)) do
  local worker = worker_of(id)
  if worker.final == '1' or is_live(worker) then
    reply[#reply + 1] = worker.json
    reply[#reply + 1] = call('HGET', STATUS, id) or ''
    reply[#reply + 1] = num(math.max(0, NOW + M.timeout - worker.alive_until))
  end
end
return reply
