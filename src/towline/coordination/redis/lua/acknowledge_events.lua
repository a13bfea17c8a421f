-- Arguments: session key, n. Drops the batches that end at or before n.
local done, count = {}, 0
for _, entry in ipairs(call('XRANGE', EVENTS, '-', '+')) do
  local fields = entry[2]
  if fields[2] == ARGV[3] and tonumber(fields[4]) <= tonumber(ARGV[4]) then
    done[#done + 1] = entry[1]
    count = count + tonumber(fields[6])
  end
end
for _, id in ipairs(done) do
  call('XDEL', EVENTS, id)
end
-- A repetition drops nothing; minus nothing would be '-0', which the server takes for no number.
if count > 0 then
  call('HINCRBY', META, 'events_pending', num(-count))
end
return { 'ok' }
