-- COORD-R17: the first command of every connection. Another server process than the run knows has restarted or taken
-- over: the newest claims may be lost with its tail, so no epoch below the next base may be granted any more.
local server = ARGV[3]
if M.owner_epoch and M.server ~= server then
  call('HINCRBY', META, 'epoch_jumps', 1)
  call('HSET', META, 'server', server, 'requeue_after', num(NOW + M.timeout))
end
return { 'ok' }
