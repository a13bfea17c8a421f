local id, session, task, epoch, started = unpack(ARGV, 3, 7)
local _, refusal = session_of(id, session)
if refusal then
  return refusal
end
if not is_held(task, epoch, session) then
  return { 'ok', '0' }
end
release_lease(task, lease_of(task), started == '1')
return { 'ok', '1' }
