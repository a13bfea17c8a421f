-- COORD-C33: nobody saw this lease.
call('ZREM', IDLE, ARGV[3])
local task = repeated(ARGV[3], ARGV[4], ARGV[5])
if not task then
  return { 'ok', '0' }
end
release_lease(task, lease_of(task), false)
return { 'ok', '1' }
