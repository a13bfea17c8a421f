local by_lease, task, epoch, id, state, json, has_events = unpack(ARGV, 3, 9)
return publish(by_lease, task, epoch, id, state, json, has_events == '1' and 10 or nil)
