-- One round trip for a busy worker. Whatever is wrong with the claim, the reply about the outcome is not lost.
local by_lease, task, epoch, id, state, json, claimer, session, token, waits, has_events = unpack(ARGV, 3, 13)
local published = publish(by_lease, task, epoch, id, state, json, has_events == '1' and 14 or nil)
local claimed = claim(claimer, session, token, waits)
if claimed[1] == 'session_ended' or claimed[1] == 'session_replaced' then
  claimed = no_work()
end
for _, part in ipairs(claimed) do
  published[#published + 1] = part
end
return published
