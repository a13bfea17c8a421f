-- Not what a run that was opened anew has numbered anew: the request may be older than the loss of all data.
if tonumber(ARGV[4]) ~= tonumber(M.epoch_jumps) then
  return { 'ok' }
end
call('XTRIM', FEED, 'MINID', num(tonumber(ARGV[3]) + 1) .. '-0')
return { 'ok' }
