-- Sorted by the caller; the payloads come along.
local reply, all = { 'ok' }, call('HGETALL', LEASES)
for i = 1, #all, 2 do
  local lease = lease_of(all[i])
  for _, part in ipairs({
    all[i], num(lease.epoch), lease.claimed, lease.worker, lease.session,
    num(tonumber(call('ZSCORE', EXPIRY, all[i])) - NOW),
    call('HGET', PAYLOAD, all[i]),
  }) do
    reply[#reply + 1] = part
  end
end
return reply
